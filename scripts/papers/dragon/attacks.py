"""`attacks`: what an observer, a cloud and a cloud that lies find out (SPEC 1.10, 1.11).

Real models and messages in virtual time. Notes are generated, so no model has read them:

- naming: which question was asked, from sizes and times alone;
- documents: which of 20 the device read, from what crossed. They answer the question in different
  ways, or stand beside the note that answers it. One attacker has the device's model and takes the
  likeliest, one counts common words; of one document beside the answer, whether it was read (AUC);
- prefixes: whether the device holds a note (after arXiv 2605.04116). The attacker asks with its
  beginnings, and compares what crosses to the rest;
- lying: whether a cloud that forces a beginning or offers candidates is told a canary.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from dragonrt.backends.llama_cpp.embedder import load_embedder
from dragonrt.backends.model import LanguageModel
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.mode import Prediction
from dragonrt.privacy.disclosure import FLOOR, Disclosure
from dragonrt.testing.scripted import SimulatedPrediction
from retrieval import Embedder
from scripts.lab.intervals import Interval, Row, grouped, having, paired, share, table
from scripts.papers import charts
from scripts.papers.dragon.attackers import CLASSIFIERS, auc, guessed, membership, named
from scripts.papers.dragon.crossing import Overheard, Scene
from scripts.papers.dragon.notes import canary_notes, rival_notes
from scripts.papers.framework import Clock, Progress, Settings

NAME = "attacks"
SUMMARY = "What an observer, a cloud and a cloud that lies find out at each level (12 minutes)"
CLOCKS: tuple[Clock, ...] = ("virtual",)

JITTER_S = 0.004
NEARLY = 0.02
"""How much less relevant the note is that does not answer the question."""
CADENCE, TICKS = "20ms", 150
DOCUMENTS = 20
PREFIXES = (1 / 3, 2 / 3)
"""Parts of a note that the attacker asks with."""
PUBLIC = "The Vardo ferry crosses to Norholm every hour and carries bicycles for free."
LEVELS = {level.value: DragonSettings(disclose=level) for level in Disclosure}


@dataclass(frozen=True, slots=True)
class Size:
    """Questions to name, each so often; documents and notes to guess; secrets to steal."""

    named: int
    repeats: int
    guessed: int
    suspected: int
    secrets: int


FULL, QUICK = Size(50, 6, 20, 20, 10), Size(6, 3, 2, 2, 2)


def _row(attack: str, framing: str, by: str, case: int, **found: Any) -> Row:
    columns = ("right", "member", "other", "bytes_up", "seconds")
    named = {"attack": attack, "framing": framing, "by": by, "case": case}
    return named | dict.fromkeys(columns) | found


def run(settings: Settings, progress: Progress) -> list[Row]:
    """Return a row per attack on an answer, or on several with prefixes of one note."""
    size = settings.size(FULL, QUICK)
    attacks = Attacks(Scene(LanguageModel.load(settings.model, "cpu")), size, settings.seed)
    parts = (attacks.lying, attacks.documents, attacks.prefixes, attacks.naming)
    rows: list[Row] = []
    for number, part in enumerate(parts, start=1):
        for row in part():
            rows.append(row)
            progress(number - 1, len(parts))
        progress(number, len(parts))
    return rows


def framings() -> dict[str, DragonSettings]:
    """Return every level as it is, padded, and at a constant rate, by name."""
    ways: dict[str, dict[str, Any]] = {
        "plain": {"traffic": "plain"},
        "padded": {"traffic": "padded"},
        "cadence": {"traffic": f"constant:{CADENCE}:{TICKS}"},
    }
    return {
        f"{level}, {way}": replace(settings, **how)
        for (level, settings), (way, how) in product(LEVELS.items(), ways.items())
    }


@dataclass(frozen=True, slots=True)
class Liar:
    """Predicts the next tokens of the texts that continue a prefix, else every token alike.

    `context` is what a side reports of its reader.
    """

    texts: Sequence[Sequence[int]]
    vocabulary: int
    relevance: float
    context: int = 0

    def read(
        self, tokens: Sequence[int], hashes: Sequence[int], first: int, *, hidden: bool = False
    ) -> list[Prediction]:
        """Return the predictions after each prefix of `tokens`, from length `first` on."""
        return [self._after(list(tokens[:length])) for length in range(first, len(tokens) + 1)]

    def _after(self, prefix: list[int]) -> Prediction:
        size = len(prefix)
        likely = {text[size] for text in self.texts if text[:size] == prefix and len(text) > size}
        p = np.full(self.vocabulary, 0.0 if likely else 1 / self.vocabulary, np.float32)
        p[list(likely)] = 1 / max(1, len(likely))
        return SimulatedPrediction(p, self.relevance, np.zeros(1, np.float32))


@dataclass(frozen=True, slots=True)
class Attacks:
    """The attacks on one model."""

    scene: Scene
    size: Size
    seed: int
    embedder: Embedder = field(default_factory=load_embedder)

    def naming(self) -> Iterator[Row]:
        """Yield whether each classifier names the question, by framing."""
        repeats, notes = self.size.repeats, canary_notes(self.size.named, self.seed + 1)
        heard: dict[str, list[Overheard]] = {name: [] for name in framings()}
        for number, note in enumerate(notes):
            question = self.scene.question(note.question)
            sides = self._sides(question, (note.text,))
            for (name, settings), repeat in product(framings().items(), range(repeats)):
                link_seed = repeats * number + repeat
                heard[name].append(self.scene.heard(sides, question, settings, link_seed, JITTER_S))
        asked = [number for number in range(len(notes)) for _ in range(repeats)]
        for name, by in product(framings(), CLASSIFIERS):
            right = named([each.seen for each in heard[name]], asked, min(repeats, 5), by)
            for each, number, guess in zip(heard[name], asked, right, strict=True):
                costs = {"bytes_up": each.bytes_up, "seconds": each.given.seconds}
                yield _row("question of sizes and times", name, by, number, right=guess, **costs)

    def documents(self) -> Iterator[Row]:
        """Yield whether the document is guessed; how much of it crossed, and of another one."""
        draw, scene = random.Random(f"documents {self.seed}"), self.scene
        notes = canary_notes(DOCUMENTS + self.size.guessed, self.seed)
        others, asked = notes[:DOCUMENTS], notes[DOCUMENTS:]
        for number in range(self.size.guessed):
            right, first = draw.randrange(DOCUMENTS), asked[number]
            rivals = rival_notes(DOCUMENTS, 1000 * self.seed + number)
            for attack, notes, beside in (
                ("document that answers", rivals, []),
                ("document beside it", others, [first]),
            ):
                question = scene.question((beside or notes)[0].question)
                texts, before = ([note.text for note in some] for some in (notes, beside))
                sides = self._sides(question, [*before, texts[right]])
                # The second document's weight in the device's mixture, which the attacker knows.
                second = 1 / (1 + np.exp(NEARLY / question.relevance_temperature))
                explained = scene.reader(question, [*texts, *before])
                known = self._tokens(question.prompt, *before)
                for level, settings in LEVELS.items():
                    heard = scene.heard(sides, question, settings)
                    scores = {
                        "model": scene.likelihoods(heard, explained, second if beside else 1.0),
                        "words": [self._crossed(heard, text, known) for text in texts],
                    }
                    for by, some in scores.items():
                        usual = float(np.mean(some[:DOCUMENTS]))  # other answers have others
                        found = {"right": guessed(some[:DOCUMENTS], right)}
                        if beside:
                            found["member"] = some[right] - usual
                            found["other"] = some[(right + 1) % DOCUMENTS] - usual
                        yield _row(attack, level, by, number, **found)

    def prefixes(self) -> Iterator[Row]:
        """Yield scores of a note that the device holds, and of one that it does not."""
        count = self.size.suspected
        texts = [note.text for note in canary_notes(2 * count, self.seed + 2)]
        held, vectors = texts[:count], self.embedder.encode(texts[:count])
        for number in range(count):
            members, others = (
                self._followed(texts[place], held, vectors) for place in (number, count + number)
            )
            for (level, by), score in members.items():
                both = {"member": score, "other": others[level, by]}
                yield _row("note held, of prefixes", level, by, number, **both)

    def _followed(self, text: str, held: Sequence[str], vectors: Any) -> dict[Any, float]:
        """Return by level and attacker how well what crosses continues a text, over its prefixes.

        One takes how much likelier it is with the text than without documents (the paper's
        reference model), the other counts words (the paper's similarity).
        """
        found: dict[Any, float] = {}
        said = text.split()
        for part in PREFIXES:
            start, rest = (" ".join(each) for each in np.split(said, [round(part * len(said))]))
            question = self.scene.question(start)
            cosines = vectors @ self.embedder.encode_question(start)
            best = [int(place) for place in np.argsort(-cosines)[: question.most_documents]]
            explained = self.scene.reader(question, (text, ""))
            read: dict[tuple[int, ...], Any] = {}
            for level, settings in LEVELS.items():
                floor = FLOOR if settings.keeps_drafts else -1.0
                places = tuple(place for place in best if cosines[place] >= floor)
                if places not in read:
                    near = [float(cosines[place]) for place in places]
                    read[places] = self._sides(question, [held[place] for place in places], near)
                heard = self.scene.heard(read[places], question, settings)
                with_it, without = self.scene.likelihoods(heard, explained)
                common = self._crossed(heard, rest, self._tokens(start))
                for by, score in (("model", with_it - without), ("words", common)):
                    found[level, by] = found.get((level, by), 0.0) + score / len(PREFIXES)
        return found

    def _tokens(self, *texts: str) -> set[int]:
        encode = self.scene.model.encode
        return {token for text in texts for token in (*encode(text), *encode(f" {text}"))}

    def _crossed(self, heard: Overheard, text: str, known: set[int]) -> float:
        model = self.scene.model
        return membership(heard.listed(model.vocabulary), model.encode(f" {text}"), known)

    def lying(self) -> Iterator[Row]:
        """Yield whether a cloud is told the canary of a note that nobody asked for."""
        model, notes = self.scene.model, canary_notes(self.size.secrets, self.seed + 3)
        for number, note in enumerate(notes):
            begin = " " + note.text.split(". ")[1].removesuffix(f" {note.canary}.")
            question = self.scene.question(note.question)
            device, honest = self._sides(question, (note.text,))
            for by, texts in (
                ("honest", ()),
                ("forced beginning", (begin,)),
                ("candidates offered", [f"{begin} {each.canary}" for each in notes]),
            ):
                tokens = [model.encode(text) for text in texts]
                liar = Liar(tokens, model.vocabulary, 1 / question.relevance_temperature)
                cloud = self.scene.speaking("cloud", liar) if texts else honest
                for level, settings in LEVELS.items():
                    heard = self.scene.heard((device, cloud), question, settings)
                    told = note.canary in model.decode(heard.drafted)
                    yield _row("canary told to a liar", level, by, number, right=told)

    def _sides(self, question: Any, texts: Sequence[str], scores: Sequence[float] = ()) -> Any:
        """Return a device that has read these notes and a cloud that has read a public text."""
        scores = scores or [0.5 - NEARLY * place for place in range(len(texts))]
        return (
            self.scene.side("device", question, texts, scores),
            self.scene.side("cloud", question, [PUBLIC], [0.2]),
        )


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Return how often each attack succeeds, and its AUC where it tells two notes apart."""
    naming = having(rows, attack="question of sizes and times")
    chance = round(1 / len(grouped(naming, "case")), 4)
    found: dict[str, Any] = {
        "chance": {"question": chance, "document": 1 / DOCUMENTS, "AUC": 0.5},
        "cost": table(naming, "framing", mean=["bytes_up"], median=["seconds"]),
    }
    for (attack, framing, by), estimate in estimates(rows).items():
        found.setdefault(attack, {}).setdefault(framing, {})[by] = estimate.to_json()
    return found


def estimates(rows: list[Row]) -> dict[tuple[str, str, str], Interval]:
    """Return the success of each attack at each framing by each attacker, or its AUC."""
    found = {}
    for (attack, framing, by), some in grouped(rows, "attack", "framing", "by").items():
        if some[0]["right"] is not None:
            found[attack, framing, by] = share([row["right"] for row in some])
        if some[0]["member"] is not None:
            both = ([row[kind] for row in some] for kind in ("member", "other"))
            found[f"{attack}, AUC", framing, by] = paired(auc, *both)
    return found


def plot(rows: list[Row], path: Path) -> None:
    """Draw a panel of each attack: success by framing and attacker, chance dashed."""
    found = estimates(rows)
    chances = summarise(rows)["chance"]
    attacks = list(dict.fromkeys(attack for attack, _, _ in found))
    with charts.picture(path, rows=2, columns=3, height_inches=6.0) as (_, axes):
        for axis, attack in zip(axes.flat, attacks, strict=False):
            here = {key[1:]: each for key, each in found.items() if key[0] == attack}
            framings = list(dict.fromkeys(framing for framing, _ in here))
            looks = charts.looks(dict.fromkeys(by for _, by in here))
            charts.bars(
                axis,
                {(by, framing): each for (framing, by), each in here.items()},
                looks,
                framings,
                horizontal=True,
            )
            axis.set_title(attack, fontsize=9)
            axis.set_xlim(0, 1.02)
            axis.tick_params(labelsize=7)
            axis.legend(fontsize=6, loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=3)
            kind = "AUC" if "AUC" in attack or "prefixes" in attack else attack.split()[0]
            if kind in chances:
                axis.axvline(chances[kind], color=charts.GREY, linestyle="--")
