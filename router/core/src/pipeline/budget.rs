//! Splits the objective of a pipeline over its stages, so that all stages together need the fewest lanes: the dynamic program of
//! Nexus (Shen et al., SOSP 2019, section 4.2, query analysis).

use crate::Nanos;

use super::Graph;

/// Most steps that an objective is divided into.
const STEPS_MAX: u32 = 1_000;

/// The best rows a second of one lane, if a request may wait as long as a batch takes and then for its batch: the best `b / l(b)` with
/// `2 l(b) <= budget`. `times` are batch times by rows. Zero if no batch is short enough.
pub fn best_throughput(times: impl IntoIterator<Item = (u32, Nanos)>, budget: Nanos) -> f64 {
    let rate = |(rows, time): (u32, Nanos)| f64::from(rows) * 1e9 / time.0.max(1) as f64;
    let short = times.into_iter().filter(|(_, time)| time.0.saturating_mul(2) <= budget.0);
    short.map(rate).fold(0.0, f64::max)
}

/// What a stage costs by its budget.
#[derive(Clone, Debug, PartialEq)]
pub struct StageCosts {
    /// Lanes for one request a second of the pipeline, if the stage has 0, 1, 2 ... steps of the objective. Infinite if it cannot be done
    /// in that time. Falls with the steps.
    lanes: Vec<f64>,
}

impl StageCosts {
    /// A stage that runs `rows` rows for each request of the pipeline. `times` are batch times by rows; the objective `slo` is divided
    /// into `steps` steps.
    pub fn new(times: &[(u32, Nanos)], rows: f64, slo: Nanos, steps: u32) -> Self {
        Self::of(slo, steps, |budget| rows / best_throughput(times.iter().copied(), budget))
    }

    /// A stage of which `lanes` says what it costs with a budget.
    pub fn of(slo: Nanos, steps: u32, lanes: impl Fn(Nanos) -> f64) -> Self {
        let lanes = (0..=steps).map(|step| {
            let budget = u128::from(slo.0) * u128::from(step) / u128::from(steps.max(1));
            lanes(Nanos(u64::try_from(budget).unwrap_or(u64::MAX)))
        });
        // No rows cost nothing, but 0 / 0 is not a number.
        Self { lanes: lanes.map(|lanes| if lanes.is_nan() { f64::INFINITY } else { lanes }).collect() }
    }

    fn at(&self, steps: u32) -> f64 {
        self.lanes.get(steps as usize).copied().unwrap_or(f64::INFINITY)
    }
}

/// Why an objective cannot be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    /// Not one curve of costs for each stage.
    #[error("expected costs of {expected} stages, got {got}")]
    Stages {
        /// Stages of the graph.
        expected: usize,
        /// Curves that were given.
        got: usize,
    },
    /// Too few or too many steps.
    #[error("expected 1 to {STEPS_MAX} steps, got {0}")]
    Steps(u32),
    /// Batches of one row take too long along a path.
    #[error("no split meets the objective: twice the shortest batches along a path take longer")]
    TooShort,
}

/// A split of an objective.
#[derive(Clone, Debug, PartialEq)]
pub struct Budgets {
    /// Steps of each stage. Along each path they are at most all steps.
    pub steps: Vec<u32>,
    /// Lanes for one request a second of the pipeline.
    pub lanes: f64,
}

impl Budgets {
    /// The split with the fewest lanes.
    ///
    /// It is optimal if each stage follows at most one other. With joins, it is a local optimum: no exchange of one step between
    /// stages is better.
    ///
    /// # Errors
    /// [`BudgetError`].
    pub fn plan(graph: &Graph, costs: &[StageCosts], steps: u32) -> Result<Self, BudgetError> {
        if costs.len() != graph.len() {
            return Err(BudgetError::Stages { expected: graph.len(), got: costs.len() });
        }
        if !(1..=STEPS_MAX).contains(&steps) {
            return Err(BudgetError::Steps(steps));
        }
        let chosen = of_tree(graph, costs, steps);
        let chosen = if graph.is_tree() { chosen } else { improved(graph, costs, steps, chosen)? };
        let split = Self { lanes: total(costs, &chosen), steps: chosen };
        if split.lanes.is_finite() { Ok(split) } else { Err(BudgetError::TooShort) }
    }

    /// Each stage's share of the objective.
    pub fn shares(&self, steps: u32) -> Vec<f64> {
        self.steps.iter().map(|&own| f64::from(own) / f64::from(steps.max(1))).collect()
    }
}

fn total(costs: &[StageCosts], steps: &[u32]) -> f64 {
    costs.iter().zip(steps).map(|(cost, &steps)| cost.at(steps)).sum()
}

/// The stage that one follows in the tree: of several, the first.
fn parent(graph: &Graph, stage: u32) -> Option<u32> {
    graph.after(stage).first().copied()
}

/// `f(stage, t) = min over k <= t of cost(stage, k) + sum over followers of f(follower, t - k)`, from the last stage to the first, and
/// then the budgets from the first to the last. Of equally good budgets, a stage gets the smallest.
fn of_tree(graph: &Graph, costs: &[StageCosts], steps: u32) -> Vec<u32> {
    let width = steps as usize + 1;
    let mut best = vec![vec![f64::INFINITY; width]; graph.len()];
    let mut budget = vec![vec![0_u32; width]; graph.len()];
    // Of each stage, the sum over its followers by the time that is left.
    let mut rest = vec![vec![0.0_f64; width]; graph.len()];
    for stage in (0_u32..).take(graph.len()).collect::<Vec<_>>().into_iter().rev() {
        let at = stage as usize;
        let (Some(cost), Some(rest_of)) = (costs.get(at), rest.get(at).cloned()) else { continue };
        for left in 0..=steps {
            let options = (0..=left).map(|own| {
                let later = rest_of.get((left - own) as usize).copied().unwrap_or(f64::INFINITY);
                (cost.at(own) + later, own)
            });
            let least = options.min_by(|one, other| one.0.total_cmp(&other.0));
            let (value, own) = least.unwrap_or((f64::INFINITY, 0));
            if let Some(slot) = best.get_mut(at).and_then(|row| row.get_mut(left as usize)) {
                *slot = value;
            }
            if let Some(slot) = budget.get_mut(at).and_then(|row| row.get_mut(left as usize)) {
                *slot = own;
            }
        }
        let own = best.get(at).cloned().unwrap_or_default();
        if let Some(sums) = parent(graph, stage).and_then(|parent| rest.get_mut(parent as usize)) {
            sums.iter_mut().zip(own).for_each(|(sum, value)| *sum += value);
        }
    }
    let mut left = vec![steps; graph.len()];
    let mut chosen = vec![0; graph.len()];
    for stage in (0_u32..).take(graph.len()) {
        let at = stage as usize;
        let before = parent(graph, stage).map(|parent| parent as usize);
        let time = before.map_or(steps, |parent| {
            let at = |list: &[u32]| list.get(parent).copied().unwrap_or_default();
            at(&left).saturating_sub(at(&chosen))
        });
        let own = budget.get(at).and_then(|row| row.get(time as usize)).copied().unwrap_or_default();
        if let (Some(slot), Some(spent)) = (left.get_mut(at), chosen.get_mut(at)) {
            (*slot, *spent) = (time, own);
        }
    }
    chosen
}

/// Takes steps from stages on paths that are too long, and then exchanges steps while that is better.
fn improved(
    graph: &Graph,
    costs: &[StageCosts],
    steps: u32,
    mut chosen: Vec<u32>,
) -> Result<Vec<u32>, BudgetError> {
    // A stage that the tree cannot do in time starts with all steps.
    for (own, cost) in chosen.iter_mut().zip(costs) {
        if !cost.at(*own).is_finite() {
            *own = steps;
        }
    }
    shorten(graph, costs, steps, &mut chosen, None)?;
    loop {
        let before = total(costs, &chosen);
        let tries = (0..graph.len()).flat_map(|stage| (1..=steps).map(move |more| (stage, more)));
        let better = tries.filter_map(|(stage, more)| {
            let mut other = chosen.clone();
            let own = other.get_mut(stage)?;
            *own = own.checked_add(more).filter(|own| *own <= steps)?;
            shorten(graph, costs, steps, &mut other, Some(stage)).ok()?;
            Some((total(costs, &other), other))
        });
        match better.min_by(|one, other| one.0.total_cmp(&other.0)) {
            Some((lanes, other)) if lanes < before - 1e-12 => chosen = other,
            _ => return Ok(chosen),
        }
    }
}

/// Takes steps, one at a time, where that costs least, until no path is longer than `steps`. `keep` loses none.
fn shorten(
    graph: &Graph,
    costs: &[StageCosts],
    steps: u32,
    chosen: &mut [u32],
    keep: Option<usize>,
) -> Result<(), BudgetError> {
    loop {
        let value = |stage: usize| chosen.get(stage).copied().map_or(0.0, f64::from);
        let (to, from) = (graph.longest_to(value), graph.longest_from(value));
        let through = |stage: usize| {
            let at = |list: &[f64]| list.get(stage).copied().unwrap_or_default();
            at(&to) + at(&from) - value(stage)
        };
        let too_long = (0..graph.len()).filter(|&stage| through(stage) > f64::from(steps) + 0.5);
        let losses: Vec<(f64, usize)> = too_long
            .clone()
            .filter(|&stage| Some(stage) != keep)
            .filter_map(|stage| {
                let (own, cost) = (chosen.get(stage).copied()?, costs.get(stage)?);
                let less = cost.at(own.checked_sub(1)?);
                less.is_finite().then(|| (less - cost.at(own), stage))
            })
            .collect();
        if too_long.count() == 0 {
            return Ok(());
        }
        let least = losses.into_iter().min_by(|one, other| one.0.total_cmp(&other.0));
        let (_, stage) = least.ok_or(BudgetError::TooShort)?;
        if let Some(own) = chosen.get_mut(stage) {
            *own -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The least lanes of all splits.
    fn brute_force(graph: &Graph, costs: &[StageCosts], steps: u32) -> f64 {
        fn try_all(graph: &Graph, costs: &[StageCosts], steps: u32, chosen: &mut Vec<u32>, best: &mut f64) {
            if chosen.len() == costs.len() {
                let longest = graph.longest_to(|stage| f64::from(chosen[stage]));
                if longest.iter().all(|&sum| sum <= f64::from(steps)) {
                    *best = best.min(total(costs, chosen));
                }
                return;
            }
            for own in 0..=steps {
                chosen.push(own);
                try_all(graph, costs, steps, chosen, best);
                chosen.pop();
            }
        }
        let mut best = f64::INFINITY;
        try_all(graph, costs, steps, &mut Vec::new(), &mut best);
        best
    }

    /// Batch times `alpha + beta b` in steps of the objective, with random rows.
    fn stage() -> impl Strategy<Value = StageCosts> {
        (1_u64..120, 1_u64..60, 0.2_f64..5.0).prop_map(|(alpha, beta, rows)| {
            let times: Vec<(u32, Nanos)> = [1_u32, 2, 4, 8, 16]
                .map(|rows| (rows, Nanos::from_millis(alpha + beta * u64::from(rows))))
                .to_vec();
            StageCosts::new(&times, rows, Nanos::from_millis(1_000), 8)
        })
    }

    fn graph(tree: bool) -> impl Strategy<Value = Graph> {
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..=if tree { 1 } else { 2 }), 1..=5)
            .prop_map(|picks| {
                let after = (0_u32..).zip(picks).map(|(stage, before)| {
                    let earlier = before.into_iter().filter(|_| stage > 0);
                    earlier.map(|pick| u32::from(pick) % stage).collect()
                });
                Graph::new(after.collect()).unwrap()
            })
    }

    fn costs(graph: impl Strategy<Value = Graph>) -> impl Strategy<Value = (Graph, Vec<StageCosts>)> {
        graph.prop_flat_map(|graph| {
            let stages = prop::collection::vec(stage(), graph.len());
            (Just(graph), stages)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        #[test]
        fn the_split_of_a_tree_is_as_good_as_the_best_of_all((graph, costs) in costs(graph(true))) {
            let best = brute_force(&graph, &costs, 8);
            match Budgets::plan(&graph, &costs, 8) {
                Ok(split) => {
                    prop_assert!((split.lanes - best).abs() <= 1e-9 * best, "{} instead of {best}", split.lanes);
                    let longest = graph.longest_to(|stage| f64::from(split.steps[stage]));
                    prop_assert!(longest.iter().all(|&sum| sum <= 8.0));
                }
                Err(error) => prop_assert!(best.is_infinite() && error == BudgetError::TooShort, "{error}"),
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn the_split_of_a_graph_with_joins_is_close_to_the_best((graph, costs) in costs(graph(false))) {
            let best = brute_force(&graph, &costs, 8);
            match Budgets::plan(&graph, &costs, 8) {
                Ok(split) => {
                    prop_assert!(split.lanes >= best - 1e-9 && split.lanes <= 1.15 * best, "{} for {best}", split.lanes);
                    let longest = graph.longest_to(|stage| f64::from(split.steps[stage]));
                    prop_assert!(longest.iter().all(|&sum| sum <= 8.0));
                }
                Err(error) => prop_assert!(best.is_infinite() && error == BudgetError::TooShort, "{error}"),
            }
        }
    }

    #[test]
    fn the_stage_that_gains_most_from_large_batches_gets_the_time() {
        let millis = |rows: u32, time: u64| (rows, Nanos::from_millis(time));
        let steady = [millis(1, 10), millis(8, 80)];
        let batching = [millis(1, 10), millis(8, 20), millis(32, 50)];
        let slo = Nanos::from_millis(200);
        let costs = [&steady[..], &batching].map(|times| StageCosts::new(times, 1.0, slo, 10));
        let split = Budgets::plan(&Graph::chain(2).unwrap(), &costs, 10).unwrap();
        assert_eq!(split.steps, [1, 5], "of 20 ms each");
        assert_eq!(split.shares(10), [0.1, 0.5]);
    }

    #[test]
    fn what_cannot_be_split_is_refused() {
        let costs = StageCosts::new(&[(1, Nanos::from_millis(60))], 1.0, Nanos::from_millis(200), 10);
        let chain = Graph::chain(2).unwrap();
        let error = Budgets::plan(&chain, &[costs.clone(), costs.clone()], 10).unwrap_err();
        assert_eq!(error, BudgetError::TooShort);
        assert_eq!(
            Budgets::plan(&chain, std::slice::from_ref(&costs), 10).unwrap_err().to_string(),
            "expected costs of 2 stages, got 1"
        );
        assert_eq!(Budgets::plan(&chain, &[costs.clone(), costs], 0).unwrap_err(), BudgetError::Steps(0));
        assert_eq!(best_throughput([(1, Nanos::ZERO)], Nanos::ZERO), 1e9);
    }
}
