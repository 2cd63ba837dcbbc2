//! Where to split a chain whose stages share one objective, so that they cost the least together.

use crate::error::{ParallelError, within};

/// Layers at most. The time grows with their square, and with that of the steps.
pub const LAYERS_MAX: usize = 64;
/// Stages at most.
pub const STAGES_MAX: usize = 16;
/// Steps of an objective at most.
pub const STEPS_MAX: u32 = 200;

/// A stage: consecutive layers, and its part of the objective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetedStage {
    /// First layer.
    pub from: usize,
    /// The layer after the last one.
    pub to: usize,
    /// Steps of the objective.
    pub steps: u32,
}

/// A chain split into stages.
#[derive(Clone, Debug, PartialEq)]
pub struct BudgetedSplit {
    /// Stages in the order in which a request passes them. Their steps are at most those of the objective together.
    pub stages: Vec<BudgetedStage>,
    /// Sum of the costs of the stages, finite.
    pub cost: f64,
}

/// The cheapest split into each number of stages from 1 to `stages_max`: `None` where every one costs infinitely much. A dynamic program
/// over split points and steps of the objective.
///
/// `cost(from, to, n)` is the cost of the layers `from..to` as a stage with `n` of the `steps`. Infinite: it cannot be done.
///
/// # Errors
/// Numbers out of their bounds.
pub fn cheapest_splits(
    layers: usize,
    stages_max: usize,
    steps: u32,
    cost: impl Fn(usize, usize, u32) -> f64,
) -> Result<Vec<Option<BudgetedSplit>>, ParallelError> {
    within("layers", layers, 1, LAYERS_MAX)?;
    within("stages", stages_max, 1, STAGES_MAX.min(layers))?;
    within("steps", steps as usize, 1, STEPS_MAX as usize)?;
    let width = steps as usize + 1;
    let at = |to: usize, used: u32| to * width + used as usize;
    // By number of stages: the least cost of the first layers with a number of steps, and the last stage that has it.
    let mut tables: Vec<Vec<(f64, BudgetedStage)>> = Vec::with_capacity(stages_max);
    let none = (f64::INFINITY, BudgetedStage { from: 0, to: 0, steps: 0 });
    for stages in 1..=stages_max {
        let before = tables.last();
        let mut table = vec![none; (layers + 1) * width];
        for to in stages..=layers {
            for from in stages - 1..to {
                for own in 1..=steps {
                    let last = cost(from, to, own);
                    if !last.is_finite() {
                        continue;
                    }
                    let stage = BudgetedStage { from, to, steps: own };
                    for used in own..=steps {
                        let earlier = match before {
                            None if from == 0 => 0.0,
                            None => f64::INFINITY,
                            Some(before) => {
                                before.get(at(from, used - own)).map_or(f64::INFINITY, |(cost, _)| *cost)
                            }
                        };
                        if let Some(best) = table.get_mut(at(to, used))
                            && earlier + last < best.0
                        {
                            *best = (earlier + last, stage);
                        }
                    }
                }
            }
        }
        tables.push(table);
    }
    Ok((1..=stages_max).map(|stages| traced(&tables, (layers, steps), stages, at)).collect())
}

fn traced(
    tables: &[Vec<(f64, BudgetedStage)>],
    (layers, steps): (usize, u32),
    count: usize,
    at: impl Fn(usize, u32) -> usize,
) -> Option<BudgetedSplit> {
    let (mut to, mut left) = (layers, steps);
    let mut stages = Vec::with_capacity(count);
    let (cost, _) = *tables.get(count - 1)?.get(at(to, left))?;
    for table in tables.iter().take(count).rev() {
        let (_, stage) = *table.get(at(to, left))?;
        stages.push(stage);
        to = stage.from;
        left = left.checked_sub(stage.steps)?;
    }
    stages.reverse();
    cost.is_finite().then_some(BudgetedSplit { stages, cost })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The least cost of all ways to split the layers from `from` on into `stages` stages.
    fn least(
        layers: usize,
        from: usize,
        stages: usize,
        left: u32,
        cost: &dyn Fn(usize, usize, u32) -> f64,
    ) -> f64 {
        if stages == 0 {
            return if from == layers { 0.0 } else { f64::INFINITY };
        }
        let ways = (from + 1..=layers).flat_map(|to| (1..=left).map(move |own| (to, own)));
        let of = |(to, own)| cost(from, to, own) + least(layers, to, stages - 1, left - own, cost);
        ways.map(of).fold(f64::INFINITY, f64::min)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        #[test]
        fn no_split_is_cheaper(
            layers in prop::collection::vec((1_u32..20, 1_u32..20), 1..7),
            steps in 1_u32..9,
            memory in 10_u32..60,
            sending in 0_u32..10,
        ) {
            let count = layers.len();
            // A stage costs its work, and more if its time is short. It needs the memory of its layers.
            let cost = |from: usize, to: usize, own: u32| {
                let work: u32 = layers[from..to].iter().map(|(work, _)| work).sum();
                let bytes: u32 = layers[from..to].iter().map(|(_, bytes)| bytes).sum();
                let work = f64::from(work + if to < count { sending } else { 0 });
                if bytes > memory || work > 15.0 * f64::from(own) { f64::INFINITY } else { work + work / f64::from(own) }
            };
            let found = cheapest_splits(count, count.min(4), steps, cost).unwrap();
            for (stages, found) in (1..).zip(&found) {
                let best = least(count, 0, stages, steps, &cost);
                let Some(found) = found else {
                    prop_assert!(best.is_infinite(), "{stages} stages cost {best}");
                    continue;
                };
                prop_assert!((found.cost - best).abs() < 1e-9, "{stages} stages: {} instead of {best}", found.cost);
                let sum: f64 = found.stages.iter().map(|stage| cost(stage.from, stage.to, stage.steps)).sum();
                prop_assert!((sum - best).abs() < 1e-9 && found.stages.len() == stages);
                prop_assert!(found.stages.iter().map(|stage| stage.steps).sum::<u32>() <= steps);
                let ends = found.stages.windows(2).all(|pair| pair[0].to == pair[1].from);
                prop_assert!(ends && found.stages[0].from == 0 && found.stages[stages - 1].to == count);
            }
        }
    }

    #[test]
    fn numbers_out_of_bounds_are_named() {
        let cost = |_: usize, _: usize, _: u32| 1.0;
        for (layers, stages, steps, field) in
            [(65, 1, 10, "layers"), (4, 5, 10, "stages"), (4, 2, 0, "steps"), (0, 1, 10, "layers")]
        {
            let error = cheapest_splits(layers, stages, steps, cost).unwrap_err().to_string();
            assert!(error.contains(field), "{error}");
        }
    }
}
