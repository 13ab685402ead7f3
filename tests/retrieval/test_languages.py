"""Questions that are not in English are told apart; English ones never are taken for others."""

import pytest

from dragonrt import bundled
from retrieval.questions import language_of

OTHERS = {
    "German": (
        *("Wann ist der Tanzkurs?", "Wer war Kant?", "Was kostet die Miete?", "Und wer noch?"),
        *("Hat Lena den Schlüssel?", "Hast du die Nummer von Oskar?", "Gib mir die Nummer vom Amt"),
    ),
    "French": (
        *("Quand est le cours de danse ?", "Qui a écrit ce livre ?", "Pourquoi ?"),
        *("Qui doit payer le loyer ?", "Donne-moi le numéro du plombier", "Que faut-il apporter ?"),
    ),
    "Spanish": (
        *("¿Cuándo es la clase?", "cuanto cuesta el alquiler", "¿Cómo se llama el gato?"),
        *("¿Tiene Lena la llave?", "Dame el número del fontanero.", "¿Se puede llevar al perro?"),
    ),
    "Italian": (
        *("Quando è la lezione?", "Chi ha scritto il libro?", "Come si chiama il gatto?"),
        *("Chi paga l'affitto?", "A che ora si cena?", "Cosa vuole la mamma?"),
    ),
    "Portuguese": ("Quem escreveu o livro?", "Onde está meu passaporte?"),
    "Dutch": (
        *("Wanneer is de dansles?", "Wat kost de huur?", "Hoe heet de kat?"),
        *("Kun je het contract samenvatten?", "Laat de boodschappenlijst zien"),
    ),
    "Swedish": ("När är lektionen?", "Vad kostar hyran?"),
    "Danish or Norwegian": ("Hvornår er timen?", "Hva heter katten?"),
    "Polish": (
        *("Kiedy jest lekcja tańca?", "Kto napisał książkę?"),
        *("Podaj mi numer hydraulika.", "Jak się czuje Tom?"),
    ),
    "Czech": ("Kdy je lekce tance?", "Kolik stojí nájem?"),
    "Turkish": ("Dans dersi ne zaman?", "Kira ne kadar?"),
    "Finnish": ("Milloin tanssitunti on?", "Mikä kissan nimi on?"),
    "Cyrillic": ("Когда урок танцев?",),
    "Greek": ("Πότε είναι το μάθημα;",),
    "Arabic": ("متى درس الرقص؟",),
    "Chinese": ("舞蹈课是什么时候？",),
    "Japanese": ("ダンスのレッスンはいつですか",),
    "Korean": ("댄스 수업은 언제예요?",),
}
ENGLISH = (
    *("Ferry times?", "and Emil?", "No.", "Was Ada late?", "Is it open?", "IBAN", "What is π?", ""),
    *("Who wrote Der Ring des Nibelungen?", "Who sang 'Wer hat an der Uhr gedreht'?", "2²"),
    *("What does the Mietvertrag say about the Kaution?", "Summarise Das Boot", "Il Postino actor"),
    *("Que Sera Sera singer", "Che Guevara birthday", "Dove Cameron age", "Ben Hur director"),
    *("Rue de la Paix 12, rent", "Casa de la Moneda", "Das Leben der Anderen director"),
    *("Is de Gaulle dead?", "Was Die Hard filmed in Los Angeles?", "Ile de France population"),
    *("Kim Jong Un age", "Kuka robots founded", "Comment on the lease", "O Canada lyrics"),
    *("Sind Valley", "Sont-Mar phone", "Dime stores", "Jest a moment", "Zijn shop", "Hay fever"),
    *("Ist time zone", "Ein Herz und eine Seele episodes", "C'est la vie meaning", "Ho Chi Minh"),
    *("Is Op de Beeck Dutch?", "Was ist das?, said Tom", "Wie viel was Tom's first German phrase"),
    *("Ich bin ein Berliner speaker", "Kan extension", "GE stock", "Wen Jiabao age", "Donne poems"),
    *("Van der Waals force", "In vino veritas", "Michelle Wie", "9 am EST or CET?", "Und co"),
)


@pytest.mark.parametrize(
    ("language", "question"), [(name, each) for name, asked in OTHERS.items() for each in asked]
)
def test_a_question_says_its_language(language: str, question: str) -> None:
    assert language_of(question) == language


@pytest.mark.parametrize("question", [*ENGLISH, *(each.text for each in bundled.questions())])
def test_names_and_quotations_make_no_other_language(question: str) -> None:
    assert language_of(question) is None
