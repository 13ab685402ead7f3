"""Tells a question that is not in English, by the words that hold its sentences together. Pure.

It names a language only where it is sure: names, titles and quotations of another language are in
English questions, too.
"""

import re
import unicodedata
from collections import Counter

# First words of this language alone, then those that another, English or a name may have, too.
# English has none of the second kind: "was" and "die" tell nothing.
_TABLES = {
    "English": (
        "the and with without from this that these those there it its you your our their they she "
        "his who whose whom what which when where why how are were been does did doing can could "
        "should would many much tell make than because not please about between before after "
        "during",
        "",
    ),
    "German": (
        "wer wem wen wann warum wieso weshalb wie wieviel wieviele welche welcher welches welchen "
        "welchem wessen wohin woher wofür womit ist sind wurde wurden haben ich nicht kostet gibt "
        "heißt liegt nenne zeige fasse erkläre",
        "der die das den dem des ein eine einen einer und im am zum zur von vom mit für auf bei "
        "nach aus es er sie wir was war wo hat mein meine",
    ),
    "French": (
        "quel quelle quels quelles combien pourquoi quand où sont avez avons appelle explique",
        "le la les l un une des du de d et en dans sur pour par avec au aux est ce c que qui qu il "
        "elle je mon ma mes ont a s quoi comment",
    ),
    "Spanish": (
        "qué cuál cuáles cuándo cuánto cuánta cuántos cuántas quién quiénes dónde cómo quien "
        "cuando donde cuanto cuantos cual cuesta está están dime explica",
        "el la los las un una de del y en es son que como por para con se su mi hay fue no a",
    ),
    "Italian": (
        "quando quanto quanta quanti quante quale quali perché qual cos dov sono della delle dello "
        "degli nella spiega",
        "il lo la i gli le un una di del dei da in e è che chi cosa come dove per con su si mio "
        "mia l ha costa detto",
    ),
    "Portuguese": (
        "quem quando quanto quanta quantos quantas onde quê qual quais são não você está minha",
        "o a os as um uma de do da dos das e é em no na por para com que como foi meu se disse",
    ),
    "Dutch": (
        "wanneer waarom waar wie hoeveel welke welk zijn wordt werd heeft hebben niet mijn kost",
        "de het een en van in op te voor met is wat hoe ik je aan bij naar door heet zei",
    ),
    "Swedish": (
        "vem vad när varför hur vilken vilket vilka är och inte mycket många kostar",
        "en ett den det i på av för med till som har var om jag min mitt",
    ),
    "Danish or Norwegian": (
        "hvem hvad hva hvornår når hvor hvorfor hvordan hvilken hvilket hvilke ikke og koster",
        "en et den det i på af av for med til som har er om jeg min mit mye",
    ),
    "Polish": (
        "kto kiedy gdzie dlaczego jaki jaka jakie który która które czy jest są nie mój moja imię",
        "i w z na do o od po za się co jak to dla przez ile ma",
    ),
    "Czech": (
        "kdo kdy proč jaký jaká jaké který která které kolik jsou není můj moje jmenuje",
        "a v s z na do o od po za se co jak je to pro kde",
    ),
    "Turkish": (
        "nerede nasıl niçin neden kaç nedir kimdir midir mıdır değil için kadar zaman",
        "ve bir bu ne kim mi mı hangi ile da de var en",
    ),
    "Finnish": (
        "mikä mitä missä milloin miksi miten kuinka ovat onko oli paljonko montako kenen",
        "ja on ei se että kuka joka tai minun",
    ),
}
_WORDS = {
    name: tuple(frozenset(words.split()) for words in table) for name, table in _TABLES.items()
}
_SCRIPTS = {
    **{each: each for each in ("Greek", "Cyrillic", "Arabic", "Hebrew", "Devanagari", "Bengali")},
    **{each: each for each in ("Tamil", "Thai", "Georgian", "Armenian")},
    "Cjk": "Chinese",
    "Hangul": "Korean",
    "Hiragana": "Japanese",
    "Katakana": "Japanese",
}
"""What a text is called if most of its letters are of this script, by Unicode's names."""
_WORD = re.compile(r"[^\W\d_]+")


def language_of(text: str) -> str | None:
    """Return the language of a question, by its name in English; None: English, or not known."""
    words = [word.casefold() for word in _WORD.findall(text)]
    scripts = Counter(
        unicodedata.name(letter, "?").partition(" ")[0].title() for word in words for letter in word
    )
    script, letters = max(scripts.items(), key=lambda each: each[1], default=("Latin", 0))
    if script in _SCRIPTS and letters > 1:
        has_kana = scripts["Hiragana"] + scripts["Katakana"] > 0
        return "Japanese" if has_kana else _SCRIPTS[script]
    there = set(words)
    english = len(there & _WORDS["English"][0])
    found = []
    for name, (own, shared) in _WORDS.items():
        sure, all_words = len(there & own), len(there & (own | shared))
        is_question = sure > english and (all_words > 1 or words[0] in own)
        is_sentence = not english and all_words > 2 and 2 * all_words >= len(there)
        if is_question or is_sentence:
            found.append((sure, all_words, name))
    return max(found)[-1] if found else None
