"""The tables of the evidence, in Markdown, from the results of the studies."""

import statistics
from collections import Counter
from collections.abc import Sequence

import better_heads
import pooling
import sensitivity
from answers import (
    LEVEL,
    QUESTIONS,
    Answer,
    answers,
    detectable,
    fine_tuned,
    of_contrast,
    of_question,
    results,
    secondary,
)
from claims import Claim, claims
from effects import is_inside, published
from markdown_tables import markdown_table
from pretrained.answers import Answer as PretrainedAnswer
from texts import (
    POINTS,
    ends,
    filled,
    from_to,
    p_value_text,
    published_inside,
    range_of,
    with_interval,
)
from times import ratio, times

from train.series.contrasts import Contrast, holm


def contrasts(question: str) -> str:
    """The primary contrasts of a question, with a column for each study."""
    cells = {}
    for answer in of_question(question):
        effects = (
            [", ".join(effect.text for effect in answer.published)] if answer.published else []
        )
        known = "; ".join([*effects, f"{POINTS * answer.detectable:.2f}"])
        points = with_interval(answer.found)
        cells[answer.study, answer.planned.name] = f"{points}, {answer.verdict} [{known}]"
    names = dict.fromkeys(name for _, name in cells)
    studies = QUESTIONS[question]
    rows = [[name, *(cells.get((study, name), "–") for study in studies)] for name in names]
    return markdown_table(["difference", *studies], rows)


def secondary_contrasts() -> str:
    """The secondary contrasts, each with all its studies."""
    found: dict[str, list[str]] = {}
    for study, name, numbers in secondary():
        found.setdefault(name, []).append(f"{study} {with_interval(numbers)}")
    rows = [[name, "; ".join(told)] for name, told in found.items()]
    return markdown_table(["difference", "points"], rows)


def fine_tuned_contrasts(study: str) -> str:
    """The contrasts of a study of fine-tuning. Those without a corrected p-value are secondary."""
    answers_by_name = {answer.planned.name: answer for answer in fine_tuned(study)}
    (degrees,) = {answer.planned.degrees_of_freedom for answer in answers_by_name.values()}
    rows = []
    for one in results(study)["contrasts"]:
        found, answer = Contrast(**one["numbers"]), answers_by_name.get(one["name"])
        smallest = detectable(found.standard_error, degrees, len(answers_by_name))
        rows.append(
            [
                f"{one['first']} - {one['second']}",
                one["metric"].removesuffix("_accuracy").replace("top_", "top-").replace("_", " "),
                with_interval(found),
                p_value_text(answer.adjusted) if answer else "–",
                ", ".join(effect.text for effect in published(study, one["name"])) or "–",
                f"{POINTS * smallest:.2f}",
            ]
        )
    head = ["contrast", "metric", "difference, points", "p, Holm", "published", "detectable"]
    return markdown_table(head, rows)


def fine_tuned_accuracies(study: str) -> str:
    """The mean accuracies of the losses in a study of fine-tuning."""
    rows = [
        [
            arm["name"],
            *(
                f"{POINTS * statistics.mean(run['metrics'][metric] for run in arm['runs']):.1f}"
                for metric in ("macro_top_5_accuracy", "macro_top_1_accuracy")
            ),
        ]
        for arm in results(study)["arms"]
    ]
    return markdown_table(["loss", "macro top-5", "macro top-1"], rows)


def times_to_an_accuracy() -> str:
    """How long the noised and the expected hinge train until they reach an accuracy."""
    rows = [
        [
            study,
            f"{POINTS * by_kind['noised'].accuracy:.2f}",
            *(f"{POINTS * by_kind[kind].reached:.0f} %" for kind in by_kind),
            *(f"{by_kind[kind].epochs:g}" for kind in by_kind),
            f"{ratio(by_kind):.2f}",
        ]
        for study, by_kind in times().items()
    ]
    head = [
        "study",
        "accuracy",
        "noised: runs that reach it",
        "expected",
        "noised: epochs",
        "expected",
        "time, expected / noised",
    ]
    return markdown_table(head, rows)


def other_answers() -> str:
    """The contrasts that have another answer with the standard errors of `sensitivity`."""
    both = list(zip(answers(), sensitivity.answers(), strict=True))
    rows = [
        [
            planned.study,
            planned.planned.name,
            planned.verdict,
            other.verdict,
            with_interval(other.found),
            p_value_text(other.adjusted),
        ]
        for planned, other in both
        if planned.verdict != other.verdict
    ]
    ratios = [other.found.standard_error / planned.found.standard_error for planned, other in both]
    told = (
        f"\nThese standard errors are {min(ratios):.2f} to {max(ratios):.2f} times those of the "
        f"bootstrap. Of {len(ratios)} primary contrasts, {len(rows)} have another answer"
    )
    head = ["study", "difference", "answer of the design", "answer here", "points", "corrected p"]
    return f"{told}:\n{markdown_table(head, rows)}"


def corrected_equivalences() -> str:
    """The equivalences with p-values that are corrected for all that were planned."""
    wanted = [
        (answer, p_value) for answer in answers() if (p_value := answer.equivalence) is not None
    ]
    adjusted = holm([p_value for _, p_value in wanted])
    rows = [
        [
            answer.study,
            answer.planned.name,
            p_value_text(p_value),
            p_value_text(corrected),
            "yes" if corrected < LEVEL else "no",
        ]
        for (answer, p_value), corrected in zip(wanted, adjusted, strict=True)
        if p_value < LEVEL
    ]
    told = f"\nCorrected for all {len(wanted)} equivalences that were planned, by Holm's method:\n"
    head = ["study", "difference", "p of equivalence", "corrected p", "still equivalent"]
    return f"{told}{markdown_table(head, rows)}"


def better_head_contrasts() -> str:
    """The losses with the better one of their heads."""
    rows = [
        [one.study, f"{one.first} - {one.second}", with_interval(one.found)]
        for one in better_heads.differences()
    ]
    return markdown_table(["study", "difference, each with its better head", "points"], rows)


def hierarchical_model() -> str:
    """What the hierarchical model says of the contrasts with more than one study."""
    found = pooling.pooled_contrasts()
    rows = []
    for one in found:
        answers = of_contrast(one.question, one.name)
        sets = {pooling.data_set(answer.study) for answer in answers}
        rows.append(
            [
                one.name,
                f"{len(answers)}, {len(sets)}",
                f"{one.pooled.mean.mean:+.2f}",
                _interval(one.pooled.mean),
                _interval(one.pooled.new),
                f"{one.pooled.new.above(0.0):.2f}",
                one.pooled.verdict,
            ]
        )
    head = [
        "difference",
        "studies, data sets",
        "mean",
        "its 95 % interval",
        "95 % interval in another data set",
        "probability above 0 there",
        "on average",
    ]
    checks = []
    for scale in (1.0, 4.0):
        others = [
            f"{one.name} ({other.pooled.verdict})"
            for one, other in zip(found, pooling.pooled_contrasts(scale), strict=True)
            if one.pooled.verdict != other.pooled.verdict
        ]
        told = "; ".join(others) if others else "none"
        checks.append(f"With a scale of {scale:g} in place of 2, other answers: {told}.")
    return f"{markdown_table(head, rows)}{chr(10).join(checks)}\n\n"


def _interval(law: pooling.Law) -> str:
    return "{:+.2f} to {:+.2f}".format(*law.interval)


def claims_of_the_thesis() -> str:
    """The claims of the thesis, with what was found."""
    rows = [
        [
            f"{claim.claim} ({claim.source})",
            _published(claim),
            _detectable(claim),
            claim.verdict,
            ". ".join(_why(claim)),
        ]
        for claim in claims()
    ]
    return markdown_table(["claim", "published", "detectable", "here", "why"], rows)


def _published(claim: Claim) -> str:
    """The smallest and the largest published effect of a claim."""
    if claim.times:
        return " and ".join(f"{time.published:+} %" for time in claim.times)
    if claim.published_text:
        return claim.published_text
    found = sorted(claim.published, key=lambda effect: effect.points)
    return " to ".join(dict.fromkeys(one.text for one in (found[0], found[-1]))) if found else "–"


def _detectable(claim: Claim) -> str:
    """The smallest and the largest detectable effect of a claim."""
    found = claim.detectable
    return f"{ends(found, '{:.2f}'.format)}{claim.unit}" if found else "–"


def _why(claim: Claim) -> list[str]:
    found = []
    if claim.contrast:
        found += [
            f"expected {claim.expected}: {counted(claim.answers)}; {from_to(claim.answers)} points",
        ]
        if any(answer.published for answer in claim.answers):
            found.append(f"Inside: {published_inside(claim.question, claim.contrast)}")
    elif claim.others:
        contrasts = [one for _, one in claim.others]
        found.append(f"expected {claim.expected}: {range_of(contrasts)} points")
    found += [
        f"Fine-tuned: {with_interval(answer.found)}, {answer.verdict}"
        for answer in claim.fine_tuned_answers
    ]
    if pretrained := claim.pretrained_answers:
        differences = range_of([one.found for one in pretrained])
        least = ends([POINTS * one.detectable for one in pretrained], "{:.2f}".format)
        inside = sum(is_inside(one.published, one.found) for one in pretrained)
        found.append(
            f"Pretrained: {counted(pretrained)}; {differences} points, detectable {least}, "
            f"inside {inside} of {len(pretrained)}"
        )
    if claim.first_edition:
        kinds = Counter(one.verdict for one in claim.comparisons)
        told = ", ".join(f"{kinds[kind]} {kind}" for kind in sorted(kinds))
        found.append(f"[First edition](design.md#the-first-edition): {told}")
    found += [f"`{time.name}`: {time.percent:+.2f} % of a step" for time in claim.times]
    found += [f"`{name}`: {ratio:.2f} times as long" for name, ratio in claim.ratios.items()]
    words = filter(None, (claim.unfair, claim.untested, claim.remark))
    return [*found, *map(filled, words)]


def counted(found: Sequence[Answer | PretrainedAnswer]) -> str:
    """How many answers there are of each kind, in words."""
    counts = Counter(answer.verdict for answer in found)
    return ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
