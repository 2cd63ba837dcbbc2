//! How far a request of a pipeline is.

use super::Graph;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waits,
    Runs,
    Ended,
}

/// Which stages of one request have ended, run or wait. The caller starts the stages of [`Progress::start`] and reports their ends.
#[derive(Clone, Debug)]
pub struct Progress {
    states: Vec<State>,
    /// No further stage starts: the request has its answer, or failed.
    over: bool,
}

impl Progress {
    /// A request that has just arrived.
    pub fn new(graph: &Graph) -> Self {
        Self { states: vec![State::Waits; graph.len()], over: false }
    }

    /// The stages that can start now, in their order. Each is returned once.
    pub fn start(&mut self, graph: &Graph) -> Vec<u32> {
        if self.over {
            return Vec::new();
        }
        let ended = |states: &[State], stage: u32| states.get(stage as usize) == Some(&State::Ended);
        let mut ready = Vec::new();
        for stage in (0_u32..).take(self.states.len()) {
            let waits = self.states.get(stage as usize) == Some(&State::Waits);
            if waits && graph.after(stage).iter().all(|&before| ended(&self.states, before)) {
                ready.push(stage);
            }
        }
        for &stage in &ready {
            if let Some(state) = self.states.get_mut(stage as usize) {
                *state = State::Runs;
            }
        }
        ready
    }

    /// A stage that was started ended, or had nothing to do. Returns false for one that does not run.
    pub fn end(&mut self, stage: u32) -> bool {
        match self.states.get_mut(stage as usize).filter(|state| **state == State::Runs) {
            Some(state) => {
                *state = State::Ended;
                true
            }
            None => false,
        }
    }

    /// No further stage starts: a stage answered early, or one failed. Returns the stages that run, which are to be cancelled.
    pub fn stop(&mut self) -> Vec<u32> {
        self.over = true;
        let states = (0_u32..).zip(&self.states);
        states.filter(|(_, state)| **state == State::Runs).map(|(stage, _)| stage).collect()
    }

    /// Whether all stages ended, or none starts or runs any more.
    pub fn is_complete(&self) -> bool {
        self.states.iter().all(|state| *state == State::Ended || (self.over && *state != State::Runs))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_join_waits_for_all_stages_before_it() {
        let graph = Graph::new(vec![vec![], vec![0], vec![0], vec![1, 2]]).unwrap();
        let mut progress = Progress::new(&graph);
        assert_eq!(progress.start(&graph), [0]);
        assert!(progress.start(&graph).is_empty(), "it runs already");
        assert!(progress.end(0) && !progress.end(0) && !progress.end(3));
        assert_eq!(progress.start(&graph), [1, 2]);
        progress.end(2);
        assert!(progress.start(&graph).is_empty());
        progress.end(1);
        assert_eq!(progress.start(&graph), [3]);
        assert!(progress.end(3) && progress.is_complete());
    }

    #[test]
    fn an_early_answer_stops_what_runs_and_starts_nothing() {
        let graph = Graph::new(vec![vec![], vec![0], vec![0], vec![2]]).unwrap();
        let mut progress = Progress::new(&graph);
        progress.start(&graph);
        progress.end(0);
        progress.start(&graph);
        progress.end(1);
        assert_eq!(progress.stop(), [2]);
        assert!(!progress.is_complete());
        progress.end(2);
        assert!(progress.start(&graph).is_empty() && progress.is_complete());
    }

    proptest! {
        #[test]
        fn each_stage_starts_once_after_all_before_it(
            edges in prop::collection::vec(prop::collection::vec(0_u32..12, 0..4), 1..12),
            order in prop::collection::vec(any::<u16>(), 64),
        ) {
            let after = (0_u32..).zip(edges).map(|(stage, before)| before.into_iter().filter(|one| *one < stage).collect());
            let graph = Graph::new(after.collect()).unwrap();
            let (mut progress, mut runs, mut ended) = (Progress::new(&graph), Vec::new(), Vec::new());
            for pick in order {
                for stage in progress.start(&graph) {
                    prop_assert!(graph.after(stage).iter().all(|before| ended.contains(before)));
                    prop_assert!(!ended.contains(&stage) && !runs.contains(&stage));
                    runs.push(stage);
                }
                if !runs.is_empty() {
                    let stage = runs.swap_remove(usize::from(pick) % runs.len());
                    prop_assert!(progress.end(stage));
                    ended.push(stage);
                }
            }
            prop_assert!(progress.is_complete());
            prop_assert_eq!(ended.len(), graph.len());
        }
    }
}
