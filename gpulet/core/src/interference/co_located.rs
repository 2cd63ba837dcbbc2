//! What runs beside a batch, put together once for all the batches and shares that are asked about.

use super::Load;

/// The neighbours of a gpulet while each runs whichever of its batches is worst.
#[derive(Clone, Debug, PartialEq)]
pub struct CoLocated {
    /// Of one neighbour the loads that take turns; of several, at least as much as any of a neighbour's loads.
    loads: Vec<Load>,
    by_turns: bool,
}

impl CoLocated {
    /// One inner list a neighbour, of the loads that take turns there.
    pub fn of<'a>(neighbours: impl IntoIterator<Item = &'a [Load]>) -> Self {
        let mut neighbours = neighbours.into_iter();
        let (first, second) = (neighbours.next(), neighbours.next());
        match (first, second) {
            (Some(turns), None) => Self { loads: turns.to_vec(), by_turns: true },
            (first, second) => {
                let all = first.into_iter().chain(second).chain(neighbours);
                Self { loads: all.map(Load::envelope).collect(), by_turns: false }
            }
        }
    }

    /// Every combination of loads that may run at once and is worth asking about.
    pub(super) fn cases(&self) -> impl Iterator<Item = &[Load]> {
        let size = if self.by_turns { 1 } else { self.loads.len() };
        let alone = (size == 0).then_some(&[][..]);
        alone.into_iter().chain(self.loads.chunks(size.max(1)))
    }
}
