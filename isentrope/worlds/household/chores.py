"""Tables of household tasks: what can be done with an object, where it fits, and which tasks a kind of room has."""

from __future__ import annotations


def _table(text: str) -> dict[str, list[str]]:
    """The words behind each name and its colon, as in `sofa: book box; desk: pen`."""
    rows = (row.split(":") for row in text.split(";"))
    return {name.strip(): words.split() for name, words in rows}


LAMP = "desklamp"
LOOK_AT = (
    "alarmclock book bowl box cd cellphone creditcard keychain laptop mug newspaper pen pencil pillow "
    "plate statue tissuebox vase watch"
)
FIXED = ("desklamp", "houseplant", "sink", "television")  # everything else can be picked up
ABLE = _table("""
toggleable: desklamp;
cleanable: apple bowl butterknife cloth cup dishsponge egg fork kettle knife ladle lettuce mug pan plate pot potato
    soapbar spatula spoon tomato;
heatable: apple bread cup egg mug plate potato tomato;
coolable: apple bowl bread cup egg lettuce mug pan plate pot potato tomato winebottle;
sliceable: apple bread egg lettuce potato tomato; container: bowl box cup mug pan plate pot""")

# Each type of receptacle, and the types of object that can be put in or on it.
_HOLDS = """
armchair: book box cellphone cloth creditcard keychain laptop newspaper pillow remotecontrol;
bathtubbasin: cloth dishsponge handtowel soapbar; bed: book cellphone laptop pillow;
cabinet: book bowl box candle cd cloth cup dishsponge glassbottle handtowel kettle ladle mug newspaper pan peppershaker
    plate pot saltshaker soapbar soapbottle spraybottle tissuebox toiletpaper vase wateringcan winebottle;
cart: candle cloth dishsponge handtowel soapbar soapbottle spraybottle tissuebox toiletpaper; coffeemachine: mug;
coffeetable: book bowl box candle cellphone creditcard keychain laptop newspaper pen pencil plate remotecontrol statue
    tissuebox vase watch wateringcan;
countertop: alarmclock apple book bowl bread butterknife candle cd cellphone cloth creditcard cup dishsponge egg fork
    glassbottle handtowel kettle keychain knife ladle laptop lettuce mug pan pen pencil peppershaker plate pot potato
    remotecontrol saltshaker soapbar soapbottle spatula spoon spraybottle statue tissuebox toiletpaper tomato vase
    winebottle;
desk: alarmclock book bowl box cd cellphone cloth creditcard keychain laptop mug pen pencil remotecontrol statue
    tissuebox vase watch wateringcan;
diningtable: alarmclock apple book bowl box bread butterknife candle cd cellphone cloth creditcard cup dishsponge egg
    fork glassbottle kettle keychain knife ladle laptop lettuce mug newspaper pan pen pencil peppershaker plate pot
    potato remotecontrol saltshaker soapbottle spatula spoon spraybottle statue tissuebox tomato vase watch wateringcan
    winebottle;
drawer: book butterknife candle cd cellphone cloth creditcard dishsponge fork handtowel keychain knife ladle newspaper
    pen pencil peppershaker remotecontrol saltshaker soapbar soapbottle spatula spoon spraybottle tissuebox toiletpaper
    watch wateringcan;
dresser: alarmclock book bowl box candle cd cellphone cloth creditcard keychain laptop mug newspaper pen pencil plate
    remotecontrol spraybottle statue tissuebox toiletpaper vase watch wateringcan;
fridge: apple bowl bread cup egg glassbottle lettuce mug pan plate pot potato tomato winebottle;
garbagecan: apple bread cd cloth dishsponge egg handtowel lettuce newspaper pen pencil potato soapbar soapbottle
    spraybottle tissuebox toiletpaper tomato winebottle;
handtowelholder: handtowel; laundryhamper: cloth;
microwave: apple bowl bread cup egg glassbottle mug plate potato tomato;
ottoman: book box cellphone creditcard keychain laptop newspaper pillow remotecontrol;
safe: cd cellphone creditcard keychain statue vase watch;
shelf: alarmclock book bowl box candle cd cellphone cloth creditcard cup dishsponge glassbottle handtowel kettle
    keychain mug newspaper pen pencil peppershaker plate pot remotecontrol saltshaker soapbar soapbottle spraybottle
    statue tissuebox toiletpaper vase watch wateringcan winebottle;
sidetable: alarmclock apple book bowl box bread butterknife candle cd cellphone cloth creditcard cup dishsponge egg fork
    handtowel kettle keychain knife laptop lettuce mug newspaper pan pen pencil peppershaker plate pot potato
    remotecontrol saltshaker soapbar soapbottle spatula spoon spraybottle statue tissuebox toiletpaper tomato vase watch
    wateringcan winebottle;
sinkbasin: apple bowl butterknife cloth cup dishsponge egg fork glassbottle handtowel kettle knife ladle lettuce mug pan
    plate pot potato soapbar spatula spoon tomato;
sofa: book box cellphone creditcard keychain laptop newspaper pillow remotecontrol; stoveburner: kettle pan pot;
tvstand: tissuebox; toilet: candle cloth dishsponge handtowel soapbar soapbottle spraybottle tissuebox toiletpaper;
toiletpaperhanger: toiletpaper; towelholder: towel"""
FITTING = frozenset((place, thing) for place, things in _table(_HOLDS).items() for thing in things)

# Kinds of task: in which rooms, and how often there.
TASK_ROOMS: dict[str, dict[str, int]] = {
    "pick": {"kitchen": 92, "living room": 226, "bedroom": 251, "bathroom": 280},
    "look": {"living room": 53, "bedroom": 286},
    "clean": {"kitchen": 541, "bathroom": 167},
    "heat": {"kitchen": 498},
    "cool": {"kitchen": 579},
    "two": {"kitchen": 131, "living room": 226, "bedroom": 249, "bathroom": 248},
}

# Where a task may ask for an object to be brought, by kind of task and room.
_TASK_PLACES = {
    ("pick", "kitchen"): """
cabinet: dishsponge glassbottle kettle saltshaker; countertop: glassbottle lettuce pan peppershaker;
diningtable: glassbottle pan saltshaker tomato winebottle; drawer: butterknife fork peppershaker saltshaker;
fridge: bowl egg glassbottle; garbagecan: soapbottle; microwave: bread egg potato tomato;
shelf: kettle peppershaker winebottle; sidetable: butterknife knife peppershaker; stoveburner: kettle""",
    ("pick", "living room"): """
armchair: book box creditcard keychain laptop newspaper pillow remotecontrol;
coffeetable: book bowl creditcard keychain remotecontrol statue tissuebox vase watch; diningtable: box;
drawer: creditcard keychain; dresser: box keychain plate remotecontrol; garbagecan: newspaper;
ottoman: keychain laptop newspaper pillow remotecontrol; safe: vase watch; shelf: watch;
sidetable: laptop statue tissuebox vase watch;
sofa: book box creditcard keychain laptop newspaper pillow remotecontrol""",
    ("pick", "bedroom"): """
armchair: book cellphone keychain pillow; bed: book cellphone laptop; cabinet: book;
desk: alarmclock book cellphone creditcard keychain laptop mug pen pencil;
diningtable: alarmclock cd cellphone creditcard watch; drawer: cellphone pen;
dresser: alarmclock book cd cellphone keychain mug pencil remotecontrol statue tissuebox; garbagecan: pencil;
safe: cd cellphone keychain; shelf: alarmclock cd cellphone creditcard keychain pen pencil;
sidetable: alarmclock book cd cellphone keychain mug pen pencil""",
    ("pick", "bathroom"): """
cabinet: candle handtowel soapbottle spraybottle; cart: candle cloth dishsponge soapbar soapbottle;
countertop: candle cloth handtowel soapbottle spraybottle;
drawer: candle cloth soapbar soapbottle spraybottle toiletpaper; dresser: candle;
garbagecan: handtowel soapbar soapbottle spraybottle tissuebox toiletpaper; shelf: toiletpaper;
sidetable: candle soapbottle; toilet: candle cloth dishsponge handtowel soapbottle spraybottle tissuebox toiletpaper;
toiletpaperhanger: toiletpaper""",
    ("clean", "kitchen"): """
cabinet: bowl cup kettle ladle pan plate; coffeemachine: mug;
countertop: butterknife egg fork kettle knife ladle lettuce pan plate potato spatula spoon tomato;
diningtable: apple bowl butterknife egg fork kettle knife ladle lettuce pan plate pot potato spatula spoon tomato;
drawer: butterknife fork knife ladle spatula spoon; fridge: apple bowl egg lettuce pan plate pot potato tomato;
garbagecan: egg lettuce potato tomato; microwave: apple bowl cup egg plate potato tomato;
shelf: bowl cup dishsponge kettle plate pot;
sidetable: apple butterknife cup egg fork knife lettuce potato spatula spoon tomato; stoveburner: kettle pan pot""",
    ("clean", "bathroom"): """
cabinet: cloth dishsponge soapbar; cart: cloth dishsponge soapbar; countertop: cloth dishsponge soapbar;
drawer: cloth dishsponge soapbar; dresser: cloth; garbagecan: soapbar; shelf: cloth dishsponge soapbar;
toilet: cloth dishsponge soapbar""",
    ("heat", "kitchen"): """
cabinet: cup mug plate; coffeemachine: mug; countertop: apple bread cup egg plate potato tomato;
diningtable: apple bread cup egg plate potato tomato; fridge: apple bread cup egg plate potato tomato;
garbagecan: apple bread egg potato tomato; shelf: cup mug plate; sidetable: apple cup egg mug plate potato tomato""",
    ("cool", "kitchen"): """
cabinet: bowl cup mug pan plate pot winebottle; coffeemachine: mug;
countertop: apple bowl bread egg lettuce pan plate pot potato tomato winebottle;
diningtable: apple bowl bread cup lettuce pan plate pot potato tomato winebottle;
garbagecan: apple egg lettuce potato tomato winebottle; microwave: apple bowl bread cup egg mug plate potato tomato;
shelf: bowl cup mug plate pot; sidetable: apple cup egg mug potato; stoveburner: pan pot""",
    ("two", "kitchen"): """
cabinet: cup kettle peppershaker saltshaker winebottle; countertop: cup pan saltshaker spoon tomato;
diningtable: kettle peppershaker; drawer: knife ladle peppershaker saltshaker spatula spoon;
fridge: bread glassbottle lettuce potato; garbagecan: apple winebottle; microwave: cup egg potato;
shelf: cup glassbottle peppershaker pot saltshaker; sidetable: peppershaker saltshaker spoon""",
    ("two", "living room"): """
armchair: cellphone creditcard keychain newspaper pillow remotecontrol;
coffeetable: bowl box creditcard keychain newspaper pencil plate remotecontrol statue tissuebox vase watch; desk: vase;
diningtable: statue tissuebox vase; drawer: creditcard newspaper tissuebox;
dresser: cellphone creditcard pen statue watch; garbagecan: newspaper tissuebox;
ottoman: keychain laptop pillow remotecontrol; safe: keychain; shelf: keychain wateringcan; sidetable: statue watch;
sofa: book cellphone creditcard keychain newspaper pillow remotecontrol""",
    ("two", "bedroom"): """
armchair: creditcard pillow; bed: book cellphone laptop; cabinet: mug;
desk: alarmclock book bowl cd cellphone creditcard keychain laptop mug pen pencil;
diningtable: book cellphone creditcard; drawer: book cd cellphone keychain pen pencil;
dresser: alarmclock book bowl cd cellphone creditcard keychain pen watch; garbagecan: cd pen;
safe: cd cellphone creditcard; shelf: alarmclock cd cellphone creditcard pen pencil tissuebox watch;
sidetable: alarmclock cd cellphone creditcard keychain pen pencil tissuebox vase""",
    ("two", "bathroom"): """
cabinet: candle soapbar soapbottle spraybottle toiletpaper; cart: dishsponge soapbar soapbottle spraybottle tissuebox;
countertop: candle handtowel soapbar soapbottle spraybottle toiletpaper;
drawer: candle cloth soapbar soapbottle spraybottle tissuebox toiletpaper; dresser: spraybottle;
garbagecan: dishsponge soapbar soapbottle spraybottle; shelf: candle cloth soapbar toiletpaper; sidetable: toiletpaper;
toilet: candle cloth dishsponge handtowel soapbar soapbottle spraybottle tissuebox toiletpaper""",
}
TASK_PLACES = {
    key: sorted((thing, place) for place, things in _table(text).items() for thing in things)
    for key, text in _TASK_PLACES.items()
}
