"""How often and how long everything is measured."""

import time
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Effort:
    """Rounds that are thrown away let programs compile. A round that would end after `most_s` is left out."""

    thrown_away: int
    rounds: int
    warm_up_s: float
    measured_s: float
    most_s: float
    waits: int

    def has_time_after(self, done, began):
        elapsed = time.monotonic() - began
        return done <= self.thrown_away or elapsed / done <= self.most_s - elapsed

    def in_words(self, rounds):
        discarded = f", before them {self.thrown_away} thrown away" if self.thrown_away else ""
        return (f"{rounds} round{'s' if rounds > 1 else ''}{discarded}; "
                f"each cell {self.measured_s} s in each of them, after {self.warm_up_s} s")

    def throwing_away(self, rounds):
        return replace(self, thrown_away=rounds if self.rounds > 1 else 0)


FULL = Effort(thrown_away=0, rounds=3, warm_up_s=0.3, measured_s=1.0, most_s=300, waits=10_000)
QUICK = Effort(thrown_away=0, rounds=1, warm_up_s=0.1, measured_s=0.25, most_s=60, waits=1_000)
