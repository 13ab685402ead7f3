"""Random names, dates, prices, codes, places and invented words, by the name of their slot."""

from collections.abc import Callable
from random import Random

from .blocks import word_lists

Generator = Callable[[Random], str]


def word(r: Random, name: str) -> str:
    """One entry of a word list."""
    return r.choice(word_lists()[name])


def invented(r: Random, least: int = 2, most: int = 3) -> str:
    """A word that no reader has met, so that it can only be copied."""
    syllables = r.randint(least, most)
    text = ""
    for _ in range(syllables):
        # The empty coda is drawn as often as eight others together.
        coda = r.choice([*word_lists()["coda"], *[""] * 8])
        text += word(r, "onset") + word(r, "vowel") + coda
    return text.capitalize()


def _letters_and_digits(r: Random, n: int) -> str:
    return "".join(r.choice("ABCDEFGHJKLMNPRSTUVWXYZ23456789") for _ in range(n))


def _ordinal(n: int) -> str:
    ending = "th" if 10 <= n % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"


def person(r: Random) -> str:
    form = r.random()
    first = invented(r, 1, 2) if r.random() < 0.15 else word(r, "first name")
    if form < 0.55:
        return first
    last = invented(r) if r.random() < 0.25 else word(r, "last name")
    if form < 0.80:
        return f"{first} {last}"
    if form < 0.90:
        return f"{r.choice(['Dr.', 'Mr.', 'Mrs.', 'Ms.', 'Dr.', 'Professor'])} {last}"
    return word(r, "relative")


def date(r: Random) -> str:
    day, month = r.randint(1, 28), word(r, "month")
    year = r.choice(["", "", "", f" {r.randint(2018, 2029)}"])
    return r.choice(
        [
            f"{day} {month}{year}",
            f"{month} {day}" + (f",{year}" if year else ""),
            f"{month} {_ordinal(day)}",
            f"the {_ordinal(day)} of {month}",
            f"{day} {month[:3]}{year}",
            f"{r.randint(2019, 2029)}-{r.randint(1, 12):02d}-{day:02d}",
            f"{day}/{r.randint(1, 12)}",
        ]
    )


def time(r: Random) -> str:
    hour = r.randint(1, 12)
    minute = r.choice(["00", "15", "30", "45", "05", "10", "20", "40", "50", "55"])
    return r.choice(
        [
            f"{hour} {r.choice(['am', 'pm'])}",
            f"{hour}:{minute} {r.choice(['am', 'pm'])}",
            f"{r.randint(6, 22)}:{minute}",
            f"{hour} o'clock",
            f"half past {word(r, 'number word')}",
            "noon",
            f"{hour}{r.choice(['am', 'pm'])}",
            f"quarter to {word(r, 'number word')}",
        ]
    )


def price(r: Random) -> str:
    n = r.choice([r.randint(2, 99), r.randint(100, 999), r.randint(1, 40) * 50])
    cents = r.choice(["", "", f".{r.randint(5, 99):02d}"])
    return r.choice(
        [
            f"${n}{cents}",
            f"{n}{cents} euros",
            f"${n}{cents}",
            f"{n} dollars",
            f"{n}{cents} EUR",
            f"{n} pounds",
            f"{r.randint(2, 90) * 100} crowns",
            f"{n},{r.randint(0, 999):03d} yen",
        ]
    )


def duration(r: Random) -> str:
    return r.choice(
        [
            f"{r.randint(2, 12) * 5} minutes",
            f"{r.randint(2, 9)} hours",
            f"{word(r, 'number word')} days",
            f"{word(r, 'number word')} weeks",
            "half an hour",
            f"{r.randint(2, 11)} months",
            "an hour and a half",
            f"{r.randint(1, 3)} h {r.randint(5, 55)} min",
            f"{r.randint(2, 59)} seconds",
        ]
    )


def value(r: Random) -> str:
    """Anything at all."""
    units = word_lists()["measure"]
    forms: list[Generator] = [
        invented,
        invented,
        lambda r: str(r.randint(2, 9999)),
        lambda r: word(r, "color"),
        lambda r: _letters_and_digits(r, r.randint(3, 6)),
        lambda r: f"{word(r, 'color')} {word(r, 'animal')}",
        lambda r: word(r, "known city"),
        lambda r: f"{r.randint(2, 900)} {r.choice(units)}",
        lambda r: f"{word(r, 'book first')} {word(r, 'book second')}".lower(),
        lambda r: word(r, "food"),
        person,
        time,
        date,
        price,
    ]
    return r.choice(forms)(r)


def named_place(r: Random) -> str:
    """An institution, a project or a country that does not exist."""
    estates = word_lists()["estate"]
    forms: list[Generator] = [
        invented,
        lambda r: f"the {invented(r)} {word(r, 'place kind')}",
        lambda r: f"{word(r, 'company first')} {word(r, 'company second')}",
        lambda r: f"{word(r, 'last name')} {r.choice(estates)}",
        lambda r: f"Project {word(r, 'company first')}",
        lambda r: f"the {word(r, 'landmark')} of {invented(r)}",
        lambda r: f"planet {invented(r)}",
        lambda r: f"the kingdom of {invented(r)}",
    ]
    return r.choice(forms)(r)


def household_thing(r: Random) -> str:
    adjective = word(r, "adjective") + " " if r.random() < 0.75 else ""
    ending = ""
    if r.random() < 0.12:
        ending = r.choice(
            [
                " from " + word(r, "known city"),
                " with the " + word(r, "color") + " handle",
                " for the " + word(r, "homeroom"),
            ]
        )
    owner = r.choice(["the ", "my ", "our ", "the ", "a "])
    return owner + adjective + word(r, "thing at home") + ending


def location(r: Random) -> str:
    form = r.random()
    if form < 0.12:
        return f"along the {word(r, 'landmark near')}"
    if form < 0.2:
        return f"between the {word(r, 'landmark near')} and the {word(r, 'landmark near')}"
    adjective = r.choice(["", "", "old ", "big ", "second ", "red "])
    return f"{word(r, 'preposition')} the {adjective}{word(r, 'landmark near')}"


def reason(r: Random) -> str:
    if r.random() < 0.5:
        return f"{word(r, 'reason subject')} {word(r, 'reason of a thing')}"
    who = word(r, "first name") if r.random() < 0.7 else word(r, "relative")
    return f"{who} {word(r, 'reason of a person')}"


def city(r: Random) -> str:
    return invented(r) if r.random() < 0.2 else word(r, "known city")


def _quantity(r: Random) -> str:
    if r.random() < 0.6:
        count = r.choice([str(r.randint(2, 12)), word(r, "number word")])
        return f"{count} {word(r, 'unit')}"
    return f"{r.randint(1, 19) * 50} {r.choice(['g', 'ml', 'grams'])}"


def _phone(r: Random) -> str:
    return r.choice(
        [
            f"555-{r.randint(0, 9999):04d}",
            f"0{r.randint(10, 99)} {r.randint(100, 999)} {r.randint(1000, 9999)}",
            f"+{r.randint(1, 99)} {r.randint(100, 999)} {r.randint(100000, 999999)}",
            str(r.randint(100000, 999999)),
        ]
    )


def _address(r: Random) -> str:
    name = r.choice([word(r, "last name"), word(r, "book second"), word(r, "plant").capitalize()])
    return f"{r.randint(1, 199)} {name} " + r.choice(
        ["Street", "Road", "Avenue", "Lane", "Square", "Drive", "Way"]
    )


def _email(r: Random) -> str:
    user = word(r, "first name").lower()
    user += r.choice(["", "." + word(r, "last name").lower(), str(r.randint(1, 99))])
    host = word(r, "company first").lower() + r.choice(["mail", "post", "", "net"])
    return f"{user}@{host}.{r.choice(['com', 'org', 'net', 'de', 'eu'])}"


def _company(r: Random) -> str:
    if r.random() < 0.7:
        return word(r, "company first") + " " + word(r, "company second")
    return invented(r) + r.choice([" Ltd", " Inc", "", " GmbH"])


def _flight(r: Random) -> str:
    letters = r.choice("ABDEFKLOQSTUVWX") + r.choice("ABDEFKLOQSTUVWX")
    return letters + r.choice(["", " "]) + str(r.randint(100, 9999))


def _gate(r: Random) -> str:
    letter = r.choice("ABCDEF")
    return r.choice(
        [f"{letter}{r.randint(1, 40)}", str(r.randint(1, 30)), f"{r.randint(1, 40)}{letter}"]
    )


def _airline(r: Random) -> str:
    return word(r, "company first") + r.choice([" Air", " Airways", " Airlines"])


def _code(r: Random) -> str:
    return r.choice(
        [
            _letters_and_digits(r, 6),
            f"{_letters_and_digits(r, 2)}-{r.randint(100, 9999)}",
            str(r.randint(10000, 99999)),
            f"{r.choice('ABCXYZ')}{r.randint(10, 999)}",
        ]
    )


def _serial(r: Random) -> str:
    return r.choice(
        [
            _letters_and_digits(r, 8),
            f"{_letters_and_digits(r, 3)}-{_letters_and_digits(r, 4)}",
            str(r.randint(10**6, 10**8)),
            f"SN{r.randint(1000, 99999)}",
        ]
    )


def _model(r: Random) -> str:
    series = r.choice(["X", "S", "Pro ", "G", "Z", "MK", ""])
    return f"{word(r, 'company first')} {series}{r.randint(1, 900)}"


def _plate(r: Random) -> str:
    if r.random() < 0.5:
        return f"{_letters_and_digits(r, 2)} {r.randint(100, 9999)}"
    return f"{_letters_and_digits(r, 3)}-{_letters_and_digits(r, 3)}"


def _password(r: Random) -> str:
    if r.random() < 0.5:
        return word(r, "book second").lower() + word(r, "color") + str(r.randint(1, 999))
    return _letters_and_digits(r, 7).lower()


def _pin(r: Random) -> str:
    return f"{r.randint(0, 9999):04d}" if r.random() < 0.7 else str(r.randint(10000, 999999))


def _wifi(r: Random) -> str:
    name = word(r, "company first") + r.choice(["Net", "-Guest", "_5G", "Home", ""])
    return name + r.choice(["", str(r.randint(1, 99))])


def _user(r: Random) -> str:
    ending = r.choice([str(r.randint(1, 99)), word(r, "last name").lower()])
    return word(r, "first name").lower() + r.choice(["_", ".", ""]) + ending


def _distance(r: Random) -> str:
    n = r.choice(
        [
            str(r.randint(2, 42)),
            f"{r.randint(1, 20)}.{r.randint(1, 9)}",
            str(r.randint(2, 30) * 100),
        ]
    )
    return f"{n} {r.choice(['km', 'miles', 'kilometers', 'meters'])}"


def _hotel(r: Random) -> str:
    name = word(r, "hotel name")
    guesthouse = f"{word(r, 'last name')} Guesthouse"
    return r.choice([f"Hotel {name}", f"{name} Hotel", f"{name} Inn", guesthouse])


def _size(r: Random) -> str:
    if r.random() < 0.5:
        return f"{r.randint(2, 9)} by {r.randint(2, 9)} meters"
    return f"{r.randint(6, 60)} square meters"


def _school(r: Random) -> str:
    kind = r.choice(["School", "High School", "Elementary", "Academy"])
    return f"{word(r, 'school name')} {kind}"


def _day(r: Random) -> str:
    days = word_lists()["weekday"]
    return r.choice([*days, *["next " + day for day in days], "tomorrow"])


GENERATORS: dict[str, Generator] = {
    "p": person,
    "np": household_thing,
    "loc": location,
    "reason": reason,
    "date": date,
    "time": time,
    "price": price,
    "duration": duration,
    "value": value,
    "place2": named_place,
    "city": city,
    "day": _day,
    "qty": _quantity,
    "phone": _phone,
    "address": _address,
    "email": _email,
    "company": _company,
    "flight": _flight,
    "gate": _gate,
    "airline": _airline,
    "code": _code,
    "serial": _serial,
    "model": _model,
    "plate": _plate,
    "password": _password,
    "pin": _pin,
    "wifi": _wifi,
    "user": _user,
    "distance": _distance,
    "hotel": _hotel,
    "size": _size,
    "school": _school,
    "pet": lambda r: invented(r, 1, 2) if r.random() < 0.3 else word(r, "known pet"),
    "num": lambda r: r.choice(
        [str(r.randint(2, 99)), str(r.randint(2, 20)), word(r, "number word")]
    ),
    "num3": lambda r: str(r.randint(100, 99999 if r.random() < 0.3 else 999)),
    "temp": lambda r: f"{r.randint(8, 24) * 10} {r.choice(['degrees', 'C', 'degrees Celsius'])}",
    "weight": lambda r: f"{r.randint(2, 120)} {r.choice(['kg', 'pounds', 'kilos'])}",
    "volume": lambda r: f"{r.randint(5, 70)} {r.choice(['liters', 'gallons'])}",
    "dose": lambda r: (
        f"{r.randint(1, 40) * 25} mg" if r.random() < 0.7 else f"{r.randint(1, 20)} ml"
    ),
    "ord": lambda r: _ordinal(r.randint(1, 28)),
    "year": lambda r: str(r.randint(1850, 2027)),
    "bank": lambda r: word(r, "company first") + " Bank",
    "book": lambda r: (
        r.choice(["The ", "A ", ""]) + word(r, "book first") + " " + word(r, "book second")
    ),
    "height": lambda r: r.choice([f"{r.randint(90, 199)} cm", f"1.{r.randint(10, 99)} m"]),
}
