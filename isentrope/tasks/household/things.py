"""What can be done with a type of object, and which receptacles it fits in."""

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
