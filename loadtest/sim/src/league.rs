//! A league of policies over many workloads: who answers most, who is behind, and where.

use serde::Serialize;

use crate::report::Report;

/// A policy is behind another if it answers fewer in time by more than this share ...
pub const BEHIND: f64 = 0.005;
/// ... or by more than this one above a load of [`SCARCE`], where which requests are lost is partly chance.
pub const BEHIND_SCARCE: f64 = 0.01;
/// Load from which on lane time is scarce.
pub const SCARCE: f64 = 0.95;
/// A policy is better throughout if it answers this share more ...
const BETTER_GOODPUT: f64 = 0.01;
/// ... and its worst model has an attainment that is higher by this.
const BETTER_WORST: f64 = 0.01;
/// Lanes below this share of busy time could have done more ...
const IDLE: f64 = 0.97;
/// ... if less than this share of the requests was answered in time.
const ANSWERED: f64 = 0.97;
/// The worst model is looked for among those with more requests than this.
const REQUESTS: u64 = 50;

/// What one policy reached on one workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// Name of the policy.
    pub policy: String,
    /// Good answers a second.
    pub goodput: f64,
    /// Good answers by requests offered, 0 to 1.
    pub attainment: f64,
    /// The same of the model where it is lowest, of those with more than 50 requests; 1 without such models.
    pub worst_attainment: f64,
    /// Share of time that lanes worked, 0 to 1.
    pub lane_busy: f64,
    /// Whether the run stopped early because it reached its bound on events.
    pub stopped: bool,
}

impl Entry {
    /// The figures of a report that a league compares.
    pub fn of(report: &Report) -> Self {
        let models = report.models.iter().filter(|model| model.offered > REQUESTS);
        Self {
            policy: report.policy.clone(),
            goodput: report.goodput,
            attainment: report.attainment,
            worst_attainment: models.map(|model| model.attainment).fold(1.0, f64::min),
            lane_busy: report.lane_busy,
            stopped: report.stopped.is_some(),
        }
    }
}

/// One workload and all policies on it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Draw {
    /// Seed of the workload.
    pub seed: u64,
    /// Its lanes.
    pub lanes: u32,
    /// Its models.
    pub models: usize,
    /// Lane time that its requests need, relative to its lanes.
    pub load: f64,
    /// Good answers a second that no policy can exceed.
    pub bound: f64,
    /// One for each policy, in the order of [`League::rows`] before sorting.
    pub entries: Vec<Entry>,
}

/// A policy's place in the league. Means are over the draws.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Name of the policy.
    pub policy: String,
    /// Mean goodput relative to that of the best policy of each draw, 0 to 1.
    pub of_best: f64,
    /// Mean goodput relative to the bound, 0 to 1 apart from noise.
    pub of_bound: f64,
    /// Mean attainment of the worst model.
    pub worst_attainment: f64,
    /// Draws in which no other policy had more goodput.
    pub first: usize,
    /// Draws in which another policy had more than 0.5 % more.
    pub beaten: usize,
    /// Greatest share of the best policy's goodput that was missing, 0 to 1.
    pub most_missing: f64,
}

/// A draw in which another policy did better in some way.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Defeat {
    /// Seed of the workload.
    pub seed: u64,
    /// Its lanes.
    pub lanes: u32,
    /// Its models.
    pub models: usize,
    /// Lane time that its requests need, relative to its lanes.
    pub load: f64,
    /// The policy that the league is about.
    pub own: Entry,
    /// The other one.
    pub other: Entry,
}

/// The league table, and where the policy that it is about could do better.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct League {
    /// The policy that it is about.
    pub policy: String,
    /// Draws that count.
    pub draws: usize,
    /// Seeds of draws that do not count, because a run reached its bound on events.
    pub left_out: Vec<u64>,
    /// Mean goodput relative to that of the best other policy of each draw.
    pub of_best_other: f64,
    /// The least of it.
    pub least_of_best_other: f64,
    /// Policies, the highest mean share of the best first.
    pub rows: Vec<Row>,
    /// Draws in which the best other policy had more goodput by more than 0.5 %, or 1 % above a load of 0.95; the
    /// worst first.
    pub behind: Vec<Defeat>,
    /// Draws in which another policy had more than 1 % more goodput, and a worst model that was better by more than one
    /// point.
    pub dominated: Vec<Defeat>,
    /// Draws in which lanes had idle time although requests were lost: busy less than 97 %, attainment below 97 %.
    pub idle: Vec<Defeat>,
}

impl League {
    /// Compares `policy` with the others. Draws without it are left out.
    pub fn new(policy: &str, draws: &[Draw]) -> Self {
        let counts = |draw: &&Draw| {
            draw.entries.iter().all(|entry| !entry.stopped)
                && draw.entries.iter().any(|entry| entry.policy == policy)
        };
        let left_out = draws.iter().filter(|draw| !counts(draw)).map(|draw| draw.seed).collect();
        let draws: Vec<&Draw> = draws.iter().filter(counts).collect();
        let names = draws.first().map_or(&[][..], |draw| &draw.entries);
        let mut rows: Vec<Row> = names.iter().map(|entry| row(&entry.policy, &draws)).collect();
        rows.sort_by(|one, other| other.of_best.total_cmp(&one.of_best));
        let pairs: Vec<Defeat> = draws.iter().filter_map(|draw| against_best(policy, draw)).collect();
        let ratios: Vec<f64> = pairs.iter().map(|pair| share(pair.own.goodput, pair.other.goodput)).collect();
        let mut behind: Vec<Defeat> = pairs.iter().filter(|pair| is_behind(pair)).cloned().collect();
        let ratio = |pair: &Defeat| share(pair.own.goodput, pair.other.goodput);
        behind.sort_by(|one, other| ratio(one).total_cmp(&ratio(other)));
        let dominated = draws.iter().filter_map(|draw| dominator(policy, draw)).collect();
        let could_do_more = |pair: &&Defeat| pair.own.lane_busy < IDLE && pair.own.attainment < ANSWERED;
        Self {
            policy: policy.to_owned(),
            draws: draws.len(),
            left_out,
            of_best_other: mean(ratios.iter().copied()),
            least_of_best_other: ratios.iter().copied().reduce(f64::min).unwrap_or(0.0),
            rows,
            behind,
            dominated,
            idle: pairs.iter().filter(could_do_more).cloned().collect(),
        }
    }
}

/// `part / whole`; 1 if both are zero.
fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 1.0 }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len();
    if count == 0 { 0.0 } else { values.sum::<f64>() / count as f64 }
}

fn row(policy: &str, draws: &[&Draw]) -> Row {
    let own = |draw: &Draw| draw.entries.iter().find(|entry| entry.policy == policy).cloned();
    let pairs: Vec<(Entry, f64, f64)> = draws
        .iter()
        .filter_map(|draw| {
            let best = draw.entries.iter().map(|entry| entry.goodput).fold(0.0, f64::max);
            Some((own(draw)?, best, draw.bound))
        })
        .collect();
    let of_best = || pairs.iter().map(|(own, best, _)| share(own.goodput, *best));
    Row {
        policy: policy.to_owned(),
        of_best: mean(of_best()),
        of_bound: mean(pairs.iter().map(|(own, _, bound)| share(own.goodput, *bound))),
        worst_attainment: mean(pairs.iter().map(|(own, ..)| own.worst_attainment)),
        first: of_best().filter(|share| *share >= 1.0).count(),
        beaten: of_best().filter(|share| *share < 1.0 - BEHIND).count(),
        most_missing: of_best().map(|share| 1.0 - share).fold(0.0, f64::max),
    }
}

/// The policy and the best of the others, if there are others.
fn against_best(policy: &str, draw: &Draw) -> Option<Defeat> {
    let others = draw.entries.iter().filter(|entry| entry.policy != policy);
    defeat(policy, draw, others.max_by(|one, other| one.goodput.total_cmp(&other.goodput))?)
}

/// The policy that is better throughout by most, if there is one.
fn dominator(policy: &str, draw: &Draw) -> Option<Defeat> {
    let own = draw.entries.iter().find(|entry| entry.policy == policy)?;
    let better = draw.entries.iter().filter(|other| {
        other.goodput > (1.0 + BETTER_GOODPUT) * own.goodput
            && other.worst_attainment > own.worst_attainment + BETTER_WORST
    });
    defeat(policy, draw, better.max_by(|one, other| one.goodput.total_cmp(&other.goodput))?)
}

fn defeat(policy: &str, draw: &Draw, other: &Entry) -> Option<Defeat> {
    let own = draw.entries.iter().find(|entry| entry.policy == policy)?.clone();
    let (seed, lanes, models, load) = (draw.seed, draw.lanes, draw.models, draw.load);
    Some(Defeat { seed, lanes, models, load, own, other: other.clone() })
}

fn is_behind(pair: &Defeat) -> bool {
    let allowed = if pair.load > SCARCE { BEHIND_SCARCE } else { BEHIND };
    pair.own.goodput < (1.0 - allowed) * pair.other.goodput
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(policy: &str, goodput: f64, worst_attainment: f64) -> Entry {
        Entry {
            policy: policy.to_owned(),
            goodput,
            attainment: goodput / 200.0,
            worst_attainment,
            lane_busy: 1.0,
            stopped: false,
        }
    }

    /// Workload of 200 requests a second, of which 160 can be answered. Goodput and worst model of `own` and two others.
    fn draw(seed: u64, load: f64, figures: [(f64, f64); 3]) -> Draw {
        let names = ["own", "a", "b"].into_iter().zip(figures);
        let entries = names.map(|(name, (goodput, worst))| entry(name, goodput, worst)).collect();
        Draw { seed, lanes: 2, models: 3, load, bound: 160.0, entries }
    }

    fn seeds(defeats: &[Defeat]) -> Vec<(u64, &str)> {
        defeats.iter().map(|defeat| (defeat.seed, defeat.other.policy.as_str())).collect()
    }

    #[test]
    fn means_places_and_gaps_are_those_of_the_draws() {
        let draws = [
            draw(7, 0.8, [(160.0, 0.9), (80.0, 0.2), (40.0, 0.5)]),
            draw(8, 0.8, [(100.0, 0.5), (80.0, 0.4), (125.0, 0.5)]),
        ];
        let league = League::new("own", &draws);
        let places: Vec<_> = league.rows.iter().map(|row| row.policy.as_str()).collect();
        assert_eq!(places, ["own", "b", "a"]);
        let own = &league.rows[0];
        assert!((own.of_best - 0.9).abs() < 1e-9 && (own.of_bound - 0.8125).abs() < 1e-9, "{own:?}");
        assert!(
            (own.worst_attainment - 0.7).abs() < 1e-9 && (own.most_missing - 0.2).abs() < 1e-9,
            "{own:?}"
        );
        assert_eq!((own.first, own.beaten, league.rows[2].first, league.rows[2].beaten), (1, 1, 0, 2));
        // 160 / 80 and 100 / 125.
        assert!((league.of_best_other - 1.4).abs() < 1e-9 && (league.least_of_best_other - 0.8).abs() < 1e-9);
        assert_eq!(seeds(&league.behind), [(8, "b")]);
        assert_eq!(seeds(&league.dominated), [], "no better for the worst model");
    }

    #[test]
    fn a_gap_counts_by_the_load_and_the_worst_comes_first() {
        let at = |seed: u64, load: f64, own: f64| draw(seed, load, [(own, 0.6), (100.0, 0.615), (10.0, 0.9)]);
        let draws =
            [at(1, 0.9, 99.6), at(2, 0.9, 99.4), at(3, 1.2, 99.4), at(4, 1.2, 98.9), at(5, 0.9, 50.0)];
        let league = League::new("own", &draws);
        assert_eq!(seeds(&league.behind), [(5, "a"), (4, "a"), (2, "a")]);
        assert_eq!(seeds(&league.dominated), [(4, "a"), (5, "a")]);
    }

    #[test]
    fn idle_lanes_count_only_while_requests_are_lost() {
        let with = |seed: u64, lane_busy: f64, goodput: f64| {
            let mut draw = draw(seed, 0.8, [(goodput, 0.9), (goodput, 0.9), (goodput, 0.9)]);
            draw.entries[0].lane_busy = lane_busy;
            draw
        };
        // 190 of 200 is 95 %, 196 is 98 %.
        let league = League::new("own", &[with(1, 0.9, 190.0), with(2, 0.98, 190.0), with(3, 0.9, 196.0)]);
        assert_eq!(seeds(&league.idle).iter().map(|(seed, _)| *seed).collect::<Vec<_>>(), [1]);
        assert!(league.rows.iter().all(|row| row.first == 3), "all are first in a draw without a winner");
    }

    #[test]
    fn draws_that_stopped_early_do_not_count_and_are_named() {
        let mut stopped = draw(2, 0.8, [(1.0, 0.9), (200.0, 0.9), (1.0, 0.9)]);
        stopped.entries[2].stopped = true;
        let league = League::new("own", &[draw(1, 0.8, [(100.0, 0.9), (80.0, 0.9), (80.0, 0.9)]), stopped]);
        assert_eq!((league.draws, league.left_out, league.behind.len()), (1, vec![2], 0));
        let none = League::new("own", &[]);
        assert_eq!((none.draws, none.rows.len()), (0, 0));
    }
}
