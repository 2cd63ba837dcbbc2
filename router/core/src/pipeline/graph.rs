//! The stages of a pipeline and their order.

/// Most stages of a pipeline.
pub const STAGES_MAX: usize = 64;

/// Why stages form no pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// Too few or too many stages.
    #[error("expected 1 to {STAGES_MAX} stages, got {0}")]
    Stages(usize),
    /// A stage follows itself or a later one.
    #[error("stage {stage} follows stage {after}: expected an earlier one")]
    Order {
        /// The stage.
        stage: u32,
        /// The stage that it follows.
        after: u32,
    },
}

/// Which stages of a pipeline follow which. Stages are numbered so that each comes after those that it follows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    after: Vec<Vec<u32>>,
    followers: Vec<Vec<u32>>,
}

impl Graph {
    /// A graph in which stage `n` starts when all stages of `after[n]` have ended.
    ///
    /// # Errors
    /// There are no stages, too many, or one follows a later one.
    pub fn new(after: Vec<Vec<u32>>) -> Result<Self, GraphError> {
        if !(1..=STAGES_MAX).contains(&after.len()) {
            return Err(GraphError::Stages(after.len()));
        }
        let mut followers = vec![Vec::new(); after.len()];
        for (stage, earlier) in (0_u32..).zip(&after) {
            for &one in earlier {
                let Some(of_one) = followers.get_mut(one as usize).filter(|_| one < stage) else {
                    return Err(GraphError::Order { stage, after: one });
                };
                if !of_one.contains(&stage) {
                    of_one.push(stage);
                }
            }
        }
        Ok(Self { after, followers })
    }

    /// A graph of `stages` stages, each after the one before.
    ///
    /// # Errors
    /// Too few or too many stages.
    pub fn chain(stages: u32) -> Result<Self, GraphError> {
        Self::new((0..stages).map(|stage| stage.checked_sub(1).into_iter().collect()).collect())
    }

    /// Number of stages.
    pub fn len(&self) -> usize {
        self.after.len()
    }

    /// Whether the graph is empty, as the default one is.
    pub fn is_empty(&self) -> bool {
        self.after.is_empty()
    }

    /// The stages that one starts after.
    pub fn after(&self, stage: u32) -> &[u32] {
        self.after.get(stage as usize).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether each stage follows at most one, so that paths only part.
    pub fn is_tree(&self) -> bool {
        self.after.iter().all(|after| after.len() <= 1)
    }

    /// For each stage, the largest sum of values along a path that ends with it.
    pub fn longest_to(&self, value: impl Fn(usize) -> f64) -> Vec<f64> {
        let mut sums = vec![0.0_f64; self.len()];
        for stage in 0..self.len() {
            let before = self.after.get(stage).into_iter().flatten();
            let before = before.filter_map(|&one| sums.get(one as usize).copied()).fold(0.0, f64::max);
            if let Some(sum) = sums.get_mut(stage) {
                *sum = before + value(stage);
            }
        }
        sums
    }

    /// For each stage, the largest sum of values along a path that begins with it.
    pub fn longest_from(&self, value: impl Fn(usize) -> f64) -> Vec<f64> {
        let mut sums = vec![0.0_f64; self.len()];
        for stage in (0..self.len()).rev() {
            let after = self.followers.get(stage).into_iter().flatten();
            let after = after.filter_map(|&one| sums.get(one as usize).copied()).fold(0.0, f64::max);
            if let Some(sum) = sums.get_mut(stage) {
                *sum = after + value(stage);
            }
        }
        sums
    }

    /// The same share of an objective for each stage of a longest path.
    pub fn even_shares(&self) -> Vec<f64> {
        let depth = self.longest_to(|_| 1.0).into_iter().fold(1.0, f64::max);
        vec![1.0 / depth; self.len()]
    }

    /// The largest sum of values along a path that begins after a stage.
    pub fn longest_after(&self, stage: u32, value: impl Fn(usize) -> u64) -> u64 {
        let first = stage as usize + 1;
        let mut sums = [0_u64; STAGES_MAX];
        let best = |sums: &[u64; STAGES_MAX], stage: usize| {
            let after = self.followers.get(stage).into_iter().flatten();
            after.filter_map(|&one| sums.get(one as usize).copied()).max().unwrap_or(0)
        };
        for later in (first..self.len()).rev() {
            let sum = best(&sums, later).saturating_add(value(later));
            if let Some(slot) = sums.get_mut(later) {
                *slot = sum;
            }
        }
        best(&sums, stage as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_part_and_join() {
        // 0 -> 1 -> 3, 0 -> 2 -> 3, 4 alone
        let graph = Graph::new(vec![vec![], vec![0], vec![0], vec![1, 2], vec![]]).unwrap();
        let times = [1_u64, 10, 20, 5, 100];
        let rest: Vec<u64> = (0..5).map(|stage| graph.longest_after(stage, |one| times[one])).collect();
        assert_eq!(rest, [25, 5, 5, 0, 0]);
        let shares = [0.1, 0.5, 0.2, 0.4, 1.0];
        assert_eq!(graph.longest_to(|one| shares[one]), [0.1, 0.6, 0.1 + 0.2, 1.0, 1.0]);
        assert_eq!(graph.longest_from(|one| shares[one]), [1.0, 0.9, 0.4 + 0.2, 0.4, 1.0]);
        assert!(!graph.is_tree() && Graph::chain(3).unwrap().is_tree());
    }

    #[test]
    fn stages_follow_earlier_ones() {
        assert_eq!(Graph::new(vec![]).unwrap_err(), GraphError::Stages(0));
        assert_eq!(Graph::new(vec![vec![]; 65]).unwrap_err(), GraphError::Stages(65));
        let error = Graph::new(vec![vec![], vec![1]]).unwrap_err();
        assert_eq!(error.to_string(), "stage 1 follows stage 1: expected an earlier one");
        assert_eq!(Graph::new(vec![vec![7]]).unwrap_err(), GraphError::Order { stage: 0, after: 7 });
    }
}
