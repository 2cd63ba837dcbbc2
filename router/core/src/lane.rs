//! Lanes and the batches they hold.

use smallvec::SmallVec;

use crate::{BatchId, LaneId, ModelId, Nanos, RequestId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lane {
    pub depth: u32,
    /// Batch slots, oldest first.
    pub holding: SmallVec<[u32; 4]>,
    /// When it last reported; a batch that was queued behind another starts then.
    pub last_report: Nanos,
}

impl Lane {
    pub(crate) fn free(&self) -> bool {
        self.holding.len() < self.depth as usize
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    pub id: BatchId,
    pub lane: LaneId,
    pub model: ModelId,
    pub rows: u32,
    pub row_bytes: u64,
    pub dispatched: Nanos,
    /// By when it should have reported.
    pub expected_end: Nanos,
    pub members: SmallVec<[RequestId; 8]>,
}

/// Batches in flight by slot. The id carries a generation above the slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Batches {
    slots: Vec<Option<Batch>>,
    free: Vec<u32>,
    generation: u32,
}

impl Batches {
    pub(crate) fn insert(&mut self, build: impl FnOnce(BatchId) -> Batch) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        self.generation = self.generation.wrapping_add(1);
        let id = BatchId((u64::from(self.generation) << 32) | u64::from(slot));
        if let Some(entry) = self.slots.get_mut(slot as usize) {
            *entry = Some(build(id));
        }
        slot
    }

    pub(crate) fn at(&self, slot: u32) -> Option<&Batch> {
        self.slots.get(slot as usize).and_then(Option::as_ref)
    }

    pub(crate) fn take(&mut self, id: BatchId) -> Option<(u32, Batch)> {
        let slot = u32::try_from(id.0 & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        let entry = self.slots.get_mut(slot as usize)?;
        let batch = entry.take_if(|batch| batch.id == id)?;
        self.free.push(slot);
        Some((slot, batch))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Batch)> {
        (0..).zip(self.slots.iter()).filter_map(|(slot, batch)| batch.as_ref().map(|batch| (slot, batch)))
    }
}
