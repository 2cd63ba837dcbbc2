//! The loads co-located with a batch, prepared once for all the batches and shares that a planner evaluates.

use super::Load;

/// The gpulets that run next to a gpulet, while each runs its worst batch.
#[derive(Clone, Debug, PartialEq)]
pub struct CoLocated {
    /// With one gpulet: its loads, of which one runs at any time. With several: the largest demands of each gpulet.
    loads: Vec<Load>,
    time_shared: bool,
}

impl CoLocated {
    /// Prepares the loads of co-located gpulets. Each item holds the loads of one gpulet, of which one runs at any
    /// time.
    pub fn of<'a>(gpulets: impl IntoIterator<Item = &'a [Load]>) -> Self {
        let mut gpulets = gpulets.into_iter();
        let (first, second) = (gpulets.next(), gpulets.next());
        match (first, second) {
            (Some(loads), None) => Self { loads: loads.to_vec(), time_shared: true },
            (first, second) => {
                let all = first.into_iter().chain(second).chain(gpulets);
                Self { loads: all.map(Load::envelope).collect(), time_shared: false }
            }
        }
    }

    /// Returns every combination of loads that may run at once and has to be evaluated.
    pub(super) fn cases(&self) -> impl Iterator<Item = &[Load]> {
        let size = if self.time_shared { 1 } else { self.loads.len() };
        let alone = (size == 0).then_some(&[][..]);
        alone.into_iter().chain(self.loads.chunks(size.max(1)))
    }
}
