"""The results that the judge of upgrades accepts and rejects."""

from losses import RESTARTS, judge


def restarts(count, lost=0.0, back=9.0):
    """Figures of `count` restarts. Only the last restart has these losses and this excess over its bound of time."""
    figures = []
    for number in range(count):
        values = [lost if number + 1 == count else 0.0]
        scenario = f"upgrade, node {number + 1} of 3"
        figures.append({"scenario": scenario, "name": "lost publications", "unit": "", "must": 0.0, "median": 0.0, "values": values})
        figures.append({"scenario": scenario, "name": "all back / the plan", "unit": "×", "must": 1.1, "median": back, "values": [back]})
    return figures


def test_a_late_return_is_printed_and_not_judged():
    lines, broken = judge(restarts(RESTARTS))
    assert broken == []
    assert sum("all back / the plan" in line for line in lines) == RESTARTS


def test_one_lost_publication_of_one_run_fails():
    _, broken = judge(restarts(RESTARTS, lost=1.0))
    assert broken == ["upgrade, node 6 of 3: lost publications: [1.0]"]


def test_a_run_that_measured_less_fails():
    assert judge([])[1] == ["0 of 6 restarts were measured"]
    assert judge(restarts(RESTARTS - 1))[1] == ["5 of 6 restarts were measured"]
