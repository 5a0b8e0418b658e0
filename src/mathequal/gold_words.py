"""What people write into a column of answers beside an answer, or in place of one: tables of regular expressions."""

LABELS = "|".join(
    (
        *(
            "answer(?: key)?",
            "ans",
            "solution",
            "sol",
            "key",
            "result",
            "output",
            "response",
            "gold",
            "target",
            "value",
        ),
        *("accept", "allow", "sum", "difference", "product", "quotient", "total"),
        *("antwort", "lösung", "ergebnis", "respuesta", "rpta", "solución", "resultado", "réponse", "rep", "résultat"),
        *("risposta", "risultato", "resposta", "ответ", "答案", "答", "解", "答え", "정답", "답"),
    )
)
"""What an answer is called before a colon or the like."""

_ABBREVIATED = r"o\.?e\.?|c\.?a\.?o\.?|a\.?w\.?r\.?t\.?|i\.?s\.?w\.?|f\.?t\.?|c\.?s\.?o\.?|d\.?e\.?p\.?"
"""Of mark schemes: or equivalent, correct answer only, anything rounding to, ignore subsequent working, and so on."""
_MARKS = r"\d{1,2} ?(?:marks?|pts?|points?|punkte?|puntos?|m)|[MAB]\d(?: ?[,;]? ?[MAB]\d)*"

REMARKS = "|".join(
    (
        *("see", "page", "pages", r"pp?\.", r"cf\.?", "ref", "fig", "figure", "table", "eq", "note", "notes"),
        *("exercise", "example", "section", "chapter", "answer", "solution", "explanation", "source", "book"),
        *("approx", "approximately", "rounded", "nearest", "to the nearest", "or so", "roughly", "exact", "exactly"),
        *(r"to \d+", r"\d+ ?(?:d\.? ?p|s\.? ?f)\.?", r"\d+ (?:decimal|significant)"),
        *("as", "by", "from", "using", "since", "because", "only", "final", "unique"),
        *("correct", "checked", "check", "verified", "ok", "yes", r"\?+"),
        *("was", "formerly", "previously", "originally", "corrected", "updated", "edited", "typo"),
        *("accept", "accepted", "allow", "allowed", "condone", "ignore", "do not", "don't", "not"),
        "(?:in )?(?:any|either) order",
        *("or equivalent", "(?:or )?(?:any )?equivalent", "or (?:any |other )?(?:equal|same|similar)"),
        *(_ABBREVIATED, _MARKS, "worth", "total"),
    )
)
"""With what a remark in brackets after an answer begins."""

BARE_REMARKS = "|".join(
    (
        r"(?:,\s*|\s)(?:because|since|due to|thanks to|by (?:the|def\w*)|from the|using the|"
        r"as (?:shown|seen|given|required|above|in|it|we|the)|or (?:any |an |other )?(?:equivalent|equal|similar)|"
        rf"{_ABBREVIATED}|of (?:them|these|those)|in (?:all|total)|altogether|overall)(?!\w)[^=]*",
        r"\s+(?:[MAB]\d\s*)+",
        r"\s*\[\d{1,2}\]",
        r"\s*[,;]\s*(?:accept|allow|condone|ignore|do not|don't)\b.*",
    )
)
"""Remarks without brackets: reasons, marks, and what else is accepted."""

PLACEHOLDERS = "|".join(
    (
        # it stands elsewhere
        r"(?:see|refer to|cf|compare|look at|same as|as) (?:the )?(?:above|below|before|previous|next|text|graph|"
        r"figure|fig|table|picture|image|diagram|drawing|solution|answer|explanation|proof|back|book|page|appendix|attach\w*|"
        r"notes?|teacher|ex|exercise|problem|rubric|key)\b.*",
        "ditto|idem|见解析|见答案",
        # there are many
        r"(?:the )?(?:student )?(?:answers?|responses?)"
        r"(?: (?:may|will|can|should|could|might|do))?(?: also)? "
        r"(?:var(?:y|ies)|differ|depends?)\b.*|(?:may |will |it )?varies|(?:various|multiple) answers(?: possible)?",
        r"(?:it )?depends|depends on (?:the )?(?:student|answer)s?|(?:answers? )?various",
        r"(?:the )?(?:student|pupil|learner|child|candidate|class|reader|teacher)(?: ?s)?(?: own)? "
        r"(?:answers?|work|responses?|choice|ideas?|opinions?|words|drawings?|graphs?|discretion)",
        r"(?:(?:your|their|his|her|my) )?own (?:answers?|words|work|responses?|choice)",
        r"personal (?:answer|response|opinion)",
        r"any (?:reasonable |valid |correct |sensible |suitable |acceptable )?(?:answer|response|example)s?"
        r"(?: (?:is|are|will|can|may) .*)?",
        r"(?:student|free|open|sample|teacher) (?:response|answer|ended|dependent|answers)|(?:open|free) ?ended",
        # it comes later
        r"(?:yet |still )?to be \w+|to come|coming soon|(?:still )?pending|tb[acdn]|to ?do|fix ?me|wip|redo",
        r"(?:answer |solution |currently |still |not yet )?(?:under|in|needs?|awaiting|for|pending) (?:review|progress|"
        r"verification)",
        # it was taken away
        r"omitted|deleted|withheld|redacted|skip(?:ped)?|removed|purged|censored|略",
        r"(?:the )?(?:proof|answer|solution|derivation|figure|graph|image|text|diagram) "
        r"(?:is |was |has been |are |to be )?(?:left |being )?"
        r"(?:omitted|deleted|removed|withheld|skipped|hidden|redacted|missing|pending|lost|follows)\b.*",
        r"(?:this (?:is )?|(?:the )?(?:proof|answer|rest) (?:is )?)?left (?:to|as|for) (?:the|an?) "
        r"(?:reader|student|exercise).*",
        r"(?:this (?:is )?|(?:the )?(?:answer|proof|result) (?:is )?)?"
        r"(?:obvious|trivial|self ?(?:evident|explanatory))(?:ly)?",
        # it is not there
        r"(?:not|un) ?(?:available|applicable|given|provided|known|stated|specified|answered|graded|supplied|found)"
        r"(?: yet)?",
        r"no (?:answer|solution|key|response)(?: (?:is|was))?(?: (?:given|provided|available|yet|found|key))+",
        "no (?:answer|response|data|key)|n ?/ ?a",
        r"(?:left |field |intentionally |is |empty )*blank(?: (?:cell|answer|space))?",
        r"i (?:don'?t|do not) know|idk|no idea|dunno|not sure",
        r"keine (?:angabe|antwort|lösung)|sin respuesta|pas de réponse|нет ответа|无答案",
        # forms, models and programs
        r"xxx+|placeholder|dummy|lorem ipsum.*|(?:q ?e ?d|proofs?|prove|proved|proven)",
        r"(?:your|insert|enter|type|put|write)(?: (?:your|the|an?))? (?:final )?answer(?: here)?",
        r"(?:final ?)?answer(?: here)?",
        r"as an ai\b.*|(?:i am |i'?m )?sorry\b.*|i (?:can ?not|can'?t|can t) (?:answer|solve|determine|help|see)\b.*",
        r"(?:time ?out|timed out|exception|traceback|parse error|nonetype|object object)\b.*",
        r"#?(?:ref|value|name|div/0|num|error)",
    )
)
"""What people and programs write in place of an answer, in plain words of lower case."""

NOT_A_NUMBER = frozenset(("nan", "NaN", "NAN", "n/a", "N/A", "#N/A", "#NA", "<NA>", "NaT", "null", "Null", "NULL"))
"""What programs write into a table where a value is missing; Nan is a name."""
