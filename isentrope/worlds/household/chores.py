"""Tables of household tasks: what can be done with an object, where it fits, and which tasks a kind of room has."""

from __future__ import annotations

from functools import cache


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Everything else can be picked up.
FIXED = _words("desklamp houseplant sink television")
CLEANABLE = _words(
    "apple bowl butterknife cloth cup dishsponge egg fork kettle knife ladle lettuce mug pan plate pot "
    "potato soapbar spatula spoon tomato"
)
HEATABLE = _words("apple bread cup egg mug plate potato tomato")
COOLABLE = _words("apple bowl bread cup egg lettuce mug pan plate pot potato tomato winebottle")
SLICEABLE = _words("apple bread egg lettuce potato tomato")
CONTAINERS = _words("bowl box cup mug pan plate pot")

# Receptacle type: the types of object that can be put in or on it.
HOLDS: dict[str, str] = {
    "armchair": "book box cellphone cloth creditcard keychain laptop newspaper pillow remotecontrol",
    "bathtubbasin": "cloth dishsponge handtowel soapbar",
    "bed": "book cellphone laptop pillow",
    "cabinet": (
        "book bowl box candle cd cloth cup dishsponge glassbottle handtowel kettle ladle mug newspaper pan "
        "peppershaker plate pot saltshaker soapbar soapbottle spraybottle tissuebox toiletpaper vase "
        "wateringcan winebottle"
    ),
    "cart": "candle cloth dishsponge handtowel soapbar soapbottle spraybottle tissuebox toiletpaper",
    "coffeemachine": "mug",
    "coffeetable": (
        "book bowl box candle cellphone creditcard keychain laptop newspaper pen pencil plate remotecontrol "
        "statue tissuebox vase watch wateringcan"
    ),
    "countertop": (
        "alarmclock apple book bowl bread butterknife candle cd cellphone cloth creditcard cup dishsponge "
        "egg fork glassbottle handtowel kettle keychain knife ladle laptop lettuce mug pan pen pencil "
        "peppershaker plate pot potato remotecontrol saltshaker soapbar soapbottle spatula spoon "
        "spraybottle statue tissuebox toiletpaper tomato vase winebottle"
    ),
    "desk": (
        "alarmclock book bowl box cd cellphone cloth creditcard keychain laptop mug pen pencil "
        "remotecontrol statue tissuebox vase watch wateringcan"
    ),
    "diningtable": (
        "alarmclock apple book bowl box bread butterknife candle cd cellphone cloth creditcard cup "
        "dishsponge egg fork glassbottle kettle keychain knife ladle laptop lettuce mug newspaper pan pen "
        "pencil peppershaker plate pot potato remotecontrol saltshaker soapbottle spatula spoon spraybottle "
        "statue tissuebox tomato vase watch wateringcan winebottle"
    ),
    "drawer": (
        "book butterknife candle cd cellphone cloth creditcard dishsponge fork handtowel keychain knife "
        "ladle newspaper pen pencil peppershaker remotecontrol saltshaker soapbar soapbottle spatula spoon "
        "spraybottle tissuebox toiletpaper watch wateringcan"
    ),
    "dresser": (
        "alarmclock book bowl box candle cd cellphone cloth creditcard keychain laptop mug newspaper pen "
        "pencil plate remotecontrol spraybottle statue tissuebox toiletpaper vase watch wateringcan"
    ),
    "fridge": "apple bowl bread cup egg glassbottle lettuce mug pan plate pot potato tomato winebottle",
    "garbagecan": (
        "apple bread cd cloth dishsponge egg handtowel lettuce newspaper pen pencil potato soapbar "
        "soapbottle spraybottle tissuebox toiletpaper tomato winebottle"
    ),
    "handtowelholder": "handtowel",
    "laundryhamper": "cloth",
    "microwave": "apple bowl bread cup egg glassbottle mug plate potato tomato",
    "ottoman": "book box cellphone creditcard keychain laptop newspaper pillow remotecontrol",
    "safe": "cd cellphone creditcard keychain statue vase watch",
    "shelf": (
        "alarmclock book bowl box candle cd cellphone cloth creditcard cup dishsponge glassbottle handtowel "
        "kettle keychain mug newspaper pen pencil peppershaker plate pot remotecontrol saltshaker soapbar "
        "soapbottle spraybottle statue tissuebox toiletpaper vase watch wateringcan winebottle"
    ),
    "sidetable": (
        "alarmclock apple book bowl box bread butterknife candle cd cellphone cloth creditcard cup "
        "dishsponge egg fork handtowel kettle keychain knife laptop lettuce mug newspaper pan pen pencil "
        "peppershaker plate pot potato remotecontrol saltshaker soapbar soapbottle spatula spoon "
        "spraybottle statue tissuebox toiletpaper tomato vase watch wateringcan winebottle"
    ),
    "sinkbasin": (
        "apple bowl butterknife cloth cup dishsponge egg fork glassbottle handtowel kettle knife ladle "
        "lettuce mug pan plate pot potato soapbar spatula spoon tomato"
    ),
    "sofa": "book box cellphone creditcard keychain laptop newspaper pillow remotecontrol",
    "stoveburner": "kettle pan pot",
    "tvstand": "tissuebox",
    "toilet": "candle cloth dishsponge handtowel soapbar soapbottle spraybottle tissuebox toiletpaper",
    "toiletpaperhanger": "toiletpaper",
    "towelholder": "towel",
}


@cache
def fitting_pairs() -> frozenset[tuple[str, str]]:
    """All (receptacle type, object type) that fit."""
    return frozenset((place, thing) for place, things in HOLDS.items() for thing in things.split())


# Kinds of task: in which rooms, how often there, and which objects go where.
TASK_ROOMS: dict[str, dict[str, int]] = {
    "pick": {"kitchen": 92, "living room": 226, "bedroom": 251, "bathroom": 280},
    "look": {"living room": 53, "bedroom": 286},
    "clean": {"kitchen": 541, "bathroom": 167},
    "heat": {"kitchen": 498},
    "cool": {"kitchen": 579},
    "two": {"kitchen": 131, "living room": 226, "bedroom": 249, "bathroom": 248},
}

TASK_PLACES: dict[tuple[str, str], dict[str, str]] = {
    ("pick", "kitchen"): {
        "bowl": "fridge",
        "bread": "microwave",
        "butterknife": "drawer sidetable",
        "dishsponge": "cabinet",
        "egg": "fridge microwave",
        "fork": "drawer",
        "glassbottle": "cabinet countertop diningtable fridge",
        "kettle": "cabinet shelf stoveburner",
        "knife": "sidetable",
        "lettuce": "countertop",
        "pan": "countertop diningtable",
        "peppershaker": "countertop drawer shelf sidetable",
        "potato": "microwave",
        "saltshaker": "cabinet diningtable drawer",
        "soapbottle": "garbagecan",
        "tomato": "diningtable microwave",
        "winebottle": "diningtable shelf",
    },
    ("pick", "living room"): {
        "book": "armchair coffeetable sofa",
        "bowl": "coffeetable",
        "box": "armchair diningtable dresser sofa",
        "creditcard": "armchair coffeetable drawer sofa",
        "keychain": "armchair coffeetable drawer dresser ottoman sofa",
        "laptop": "armchair ottoman sidetable sofa",
        "newspaper": "armchair garbagecan ottoman sofa",
        "pillow": "armchair ottoman sofa",
        "plate": "dresser",
        "remotecontrol": "armchair coffeetable dresser ottoman sofa",
        "statue": "coffeetable sidetable",
        "tissuebox": "coffeetable sidetable",
        "vase": "coffeetable safe sidetable",
        "watch": "coffeetable safe shelf sidetable",
    },
    ("pick", "bedroom"): {
        "alarmclock": "desk diningtable dresser shelf sidetable",
        "book": "armchair bed cabinet desk dresser sidetable",
        "cd": "diningtable dresser safe shelf sidetable",
        "cellphone": "armchair bed desk diningtable drawer dresser safe shelf sidetable",
        "creditcard": "desk diningtable shelf",
        "keychain": "armchair desk dresser safe shelf sidetable",
        "laptop": "bed desk",
        "mug": "desk dresser sidetable",
        "pen": "desk drawer shelf sidetable",
        "pencil": "desk dresser garbagecan shelf sidetable",
        "pillow": "armchair",
        "remotecontrol": "dresser",
        "statue": "dresser",
        "tissuebox": "dresser",
        "watch": "diningtable",
    },
    ("pick", "bathroom"): {
        "candle": "cabinet cart countertop drawer dresser sidetable toilet",
        "cloth": "cart countertop drawer toilet",
        "dishsponge": "cart toilet",
        "handtowel": "cabinet countertop garbagecan toilet",
        "soapbar": "cart drawer garbagecan",
        "soapbottle": "cabinet cart countertop drawer garbagecan sidetable toilet",
        "spraybottle": "cabinet countertop drawer garbagecan toilet",
        "tissuebox": "garbagecan toilet",
        "toiletpaper": "drawer garbagecan shelf toilet toiletpaperhanger",
    },
    ("clean", "kitchen"): {
        "apple": "diningtable fridge microwave sidetable",
        "bowl": "cabinet diningtable fridge microwave shelf",
        "butterknife": "countertop diningtable drawer sidetable",
        "cup": "cabinet microwave shelf sidetable",
        "dishsponge": "shelf",
        "egg": "countertop diningtable fridge garbagecan microwave sidetable",
        "fork": "countertop diningtable drawer sidetable",
        "kettle": "cabinet countertop diningtable shelf stoveburner",
        "knife": "countertop diningtable drawer sidetable",
        "ladle": "cabinet countertop diningtable drawer",
        "lettuce": "countertop diningtable fridge garbagecan sidetable",
        "mug": "coffeemachine",
        "pan": "cabinet countertop diningtable fridge stoveburner",
        "plate": "cabinet countertop diningtable fridge microwave shelf",
        "pot": "diningtable fridge shelf stoveburner",
        "potato": "countertop diningtable fridge garbagecan microwave sidetable",
        "spatula": "countertop diningtable drawer sidetable",
        "spoon": "countertop diningtable drawer sidetable",
        "tomato": "countertop diningtable fridge garbagecan microwave sidetable",
    },
    ("clean", "bathroom"): {
        "cloth": "cabinet cart countertop drawer dresser shelf toilet",
        "dishsponge": "cabinet cart countertop drawer shelf toilet",
        "soapbar": "cabinet cart countertop drawer garbagecan shelf toilet",
    },
    ("heat", "kitchen"): {
        "apple": "countertop diningtable fridge garbagecan sidetable",
        "bread": "countertop diningtable fridge garbagecan",
        "cup": "cabinet countertop diningtable fridge shelf sidetable",
        "egg": "countertop diningtable fridge garbagecan sidetable",
        "mug": "cabinet coffeemachine shelf sidetable",
        "plate": "cabinet countertop diningtable fridge shelf sidetable",
        "potato": "countertop diningtable fridge garbagecan sidetable",
        "tomato": "countertop diningtable fridge garbagecan sidetable",
    },
    ("cool", "kitchen"): {
        "apple": "countertop diningtable garbagecan microwave sidetable",
        "bowl": "cabinet countertop diningtable microwave shelf",
        "bread": "countertop diningtable microwave",
        "cup": "cabinet diningtable microwave shelf sidetable",
        "egg": "countertop garbagecan microwave sidetable",
        "lettuce": "countertop diningtable garbagecan",
        "mug": "cabinet coffeemachine microwave shelf sidetable",
        "pan": "cabinet countertop diningtable stoveburner",
        "plate": "cabinet countertop diningtable microwave shelf",
        "pot": "cabinet countertop diningtable shelf stoveburner",
        "potato": "countertop diningtable garbagecan microwave sidetable",
        "tomato": "countertop diningtable garbagecan microwave",
        "winebottle": "cabinet countertop diningtable garbagecan",
    },
    ("two", "kitchen"): {
        "apple": "garbagecan",
        "bread": "fridge",
        "cup": "cabinet countertop microwave shelf",
        "egg": "microwave",
        "glassbottle": "fridge shelf",
        "kettle": "cabinet diningtable",
        "knife": "drawer",
        "ladle": "drawer",
        "lettuce": "fridge",
        "pan": "countertop",
        "peppershaker": "cabinet diningtable drawer shelf sidetable",
        "pot": "shelf",
        "potato": "fridge microwave",
        "saltshaker": "cabinet countertop drawer shelf sidetable",
        "spatula": "drawer",
        "spoon": "countertop drawer sidetable",
        "tomato": "countertop",
        "winebottle": "cabinet garbagecan",
    },
    ("two", "living room"): {
        "book": "sofa",
        "bowl": "coffeetable",
        "box": "coffeetable",
        "cellphone": "armchair dresser sofa",
        "creditcard": "armchair coffeetable drawer dresser sofa",
        "keychain": "armchair coffeetable ottoman safe shelf sofa",
        "laptop": "ottoman",
        "newspaper": "armchair coffeetable drawer garbagecan sofa",
        "pen": "dresser",
        "pencil": "coffeetable",
        "pillow": "armchair ottoman sofa",
        "plate": "coffeetable",
        "remotecontrol": "armchair coffeetable ottoman sofa",
        "statue": "coffeetable diningtable dresser sidetable",
        "tissuebox": "coffeetable diningtable drawer garbagecan",
        "vase": "coffeetable desk diningtable",
        "watch": "coffeetable dresser sidetable",
        "wateringcan": "shelf",
    },
    ("two", "bedroom"): {
        "alarmclock": "desk dresser shelf sidetable",
        "book": "bed desk diningtable drawer dresser",
        "bowl": "desk dresser",
        "cd": "desk drawer dresser garbagecan safe shelf sidetable",
        "cellphone": "bed desk diningtable drawer dresser safe shelf sidetable",
        "creditcard": "armchair desk diningtable dresser safe shelf sidetable",
        "keychain": "desk drawer dresser sidetable",
        "laptop": "bed desk",
        "mug": "cabinet desk",
        "pen": "desk drawer dresser garbagecan shelf sidetable",
        "pencil": "desk drawer shelf sidetable",
        "pillow": "armchair",
        "tissuebox": "shelf sidetable",
        "vase": "sidetable",
        "watch": "dresser shelf",
    },
    ("two", "bathroom"): {
        "candle": "cabinet countertop drawer shelf toilet",
        "cloth": "drawer shelf toilet",
        "dishsponge": "cart garbagecan toilet",
        "handtowel": "countertop toilet",
        "soapbar": "cabinet cart countertop drawer garbagecan shelf toilet",
        "soapbottle": "cabinet cart countertop drawer garbagecan toilet",
        "spraybottle": "cabinet cart countertop drawer dresser garbagecan toilet",
        "tissuebox": "cart drawer toilet",
        "toiletpaper": "cabinet countertop drawer shelf sidetable toilet",
    },
}

LAMP = "desklamp"
LOOK_AT = (
    "alarmclock book bowl box cd cellphone creditcard keychain laptop mug newspaper pen pencil pillow "
    "plate statue tissuebox vase watch"
)
