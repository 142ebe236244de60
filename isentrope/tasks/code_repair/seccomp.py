"""System calls that untrusted code does without: a filter for the kernel, as the bytes that bubblewrap loads.

Namespaces already keep the box apart. This shuts what they leave open: sockets that are in no network namespace (vsock
leads from a virtual machine to its host), namespaces inside the box, other people's keys, memory that no limit counts,
and the parts of the kernel that most exploits begin with. A forbidden call fails with EPERM.
"""

from __future__ import annotations

import errno
import platform
import struct

from isentrope.errors import TaskError

# names with their numbers on x86_64 and aarch64 (None: the call does not exist there)
_FORBIDDEN: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "memfd_create": (319, 279),
    "memfd_secret": (447, 447), "shmget": (29, 194), "msgget": (68, 186), "mq_open": (240, 180),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "syslog": (103, 116), "acct": (163, 89), "quotactl": (179, 60), "swapon": (167, 224), "swapoff": (168, 225),
    "reboot": (169, 142), "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None),
    "fanotify_init": (300, 262), "lookup_dcookie": (212, 18), "vmsplice": (278, 75),
}  # fmt: skip
_SOCKET, _CLONE, _CLONE3 = (41, 198), (56, 220), (435, 435)
_AUDIT_ARCH = (0xC000003E, 0xC00000B7)
_FAMILIES = (1, 2, 10)  # unix, inet, inet6: the last two end at the box's own loopback
_NEW_NAMESPACE = 0x7E020080  # CLONE_NEW…: user, pid, net, ipc, uts, cgroup, mount, time
_X32 = 0x40000000

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000


def filter_program(machine: str = "") -> bytes:
    """The filter for this kind of processor, as an array of struct sock_filter."""
    machine = machine or platform.machine()
    if machine not in ("x86_64", "aarch64"):
        raise TaskError(f"the sandbox knows the system calls of x86_64 and aarch64 processors, not of {machine}")
    column = 0 if machine == "x86_64" else 1
    refuse = _statement(_RETURN, _ERRNO | errno.EPERM)
    program = [
        _statement(_LOAD, _ARCH),
        _jump(_EQUAL, _AUDIT_ARCH[column], 1, 0),
        _statement(_RETURN, _KILL),
        _statement(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":  # the same calls under other numbers
        program += [_jump(_AT_LEAST, _X32, 0, 1), refuse]
    for numbers in _FORBIDDEN.values():
        number = numbers[column]
        if number is not None:
            program += [_jump(_EQUAL, number, 0, 1), refuse]
    # clone3 hides its flags in memory: the C library falls back to clone
    program += [_jump(_EQUAL, _CLONE3[column], 0, 1), _statement(_RETURN, _ERRNO | errno.ENOSYS)]
    program += [_jump(_EQUAL, _CLONE[column], 0, 4), _statement(_LOAD, _FIRST_ARGUMENT)]
    program += [_jump(_ANY_BIT, _NEW_NAMESPACE, 0, 1), refuse, _statement(_RETURN, _ALLOW)]
    program += [_jump(_EQUAL, _SOCKET[column], 0, 2 + len(_FAMILIES)), _statement(_LOAD, _FIRST_ARGUMENT)]
    program += [_jump(_EQUAL, family, len(_FAMILIES) - place, 0) for place, family in enumerate(_FAMILIES)]
    program += [_statement(_RETURN, _ERRNO | errno.EAFNOSUPPORT), _statement(_RETURN, _ALLOW)]
    return b"".join(program)


def _statement(code: int, value: int) -> bytes:
    return _jump(code, value, 0, 0)


def _jump(code: int, value: int, if_true: int, if_false: int) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
