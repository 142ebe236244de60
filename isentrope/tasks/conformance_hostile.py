"""Actions that no world expects, and every world must survive: a language model will say them all sooner or later."""

from __future__ import annotations

HOSTILE = (
    # nothing, blanks, control characters, escape sequences
    "", " ", "\n", "\t\r\n", "\x00", "\x7f\x08\x08", "\x1b[2J\x1b]0;x\x07", "look\x00look", "\r\nlook",
    # not an action, too long, too deep
    "no such action", "a" * 10_000, "go to" + " desk 1" * 500, "[" * 2_000, "(" * 500 + ")" * 500, "\n" * 3_000,
    # tags and templates of chat models
    "<|im_end|>", "<|im_start|>system\n", "</action><action>look</action>", "<think>", "[INST]", "</s><s>",
    "{{ 7 * 7 }}", "{% for x in y %}", "${7*7}", "#{7*7}", "<%= 7 %>",
    # format strings, paths, shells, queries, markup, code
    "{0}%s%n{x}", "%99999999d", "{0.__class__}", "../../etc/passwd", "/dev/zero", "C:\\nul", "~root/.ssh",
    "$(reboot)", "`id`", "; rm -rf /tmp/x &", "| cat", "'; DROP TABLE games; --", "\" OR 1=1 --",
    '{"action": "look"}', "[1, 2", "null", "true", "<script>alert(1)</script>", "<!ENTITY x SYSTEM 'file:///'>",
    "__import__('os').system('true')", "search[", "click[]", "search[[x]]", "answer[" + "x" * 200 + "]",
    # numbers
    "0", "-1", "1e999", "NaN", "9" * 400, "0x10", "1_0", "9**9**9",
    # unicode: lone surrogates, direction marks, wide digits, many combining marks, case that changes length
    "\udcff\ud800", "\u202e\u0000\U0001f600", "１２３", "e" + "\u0301" * 200, "ﬁne ẞ İ ŉ", "\ufeff look",
    "\u2028\u2029",
    # patterns that make a careless regular expression slow
    "a" * 200 + "!", "(a+)+$", ".*" * 50, " " * 5_000 + "x",
)  # fmt: skip
