//! Requests in flight, in a slab that reuses its slots.

use router_core::{Nanos, RequestId};

/// A request in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Virtual time of the arrival, in nanoseconds.
    pub arrived: u64,
    pub deadline: Option<Nanos>,
    pub model: u32,
    pub tenant: u16,
    pub rows: u32,
    /// Its part in a roll-out, in a pipeline or in a family.
    pub part: Part,
}

/// A request's part in a roll-out, in a pipeline or in a family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Part {
    /// Its model is not being rolled out.
    #[default]
    None,
    /// It runs on the stable version.
    Stable {
        /// Whether it runs on the canary too, after it was answered.
        mirrored: bool,
    },
    /// It runs on the canary.
    Canary,
    /// It runs on the canary only to compare outputs.
    Mirror,
    /// Its model is a family, of which it got this variant: the number of a model.
    Variant(u32),
    /// It is a part of a stage of a pipeline's request, which is counted.
    Stage {
        /// Slot of the pipeline's request.
        flow: u32,
        /// Number of the stage.
        stage: u32,
    },
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    generation: u32,
    request: Option<Request>,
}

/// The slab. It has as many entries as the peak number of unfinished requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct InFlight {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

impl InFlight {
    pub(crate) fn insert(&mut self, request: Request) -> RequestId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry { generation: 0, request: None });
            u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX)
        });
        let generation = self.entries.get_mut(slot as usize).map(|entry| {
            entry.generation = entry.generation.wrapping_add(1);
            entry.request = Some(request);
            entry.generation
        });
        if generation.is_none() {
            invariant::violated!("sim.request_without_slot");
        }
        RequestId::new(slot, generation.unwrap_or(0))
    }

    pub(crate) fn get(&self, id: RequestId) -> Option<&Request> {
        let entry =
            self.entries.get(id.slot() as usize).filter(|entry| entry.generation == id.generation())?;
        entry.request.as_ref()
    }

    pub(crate) fn remove(&mut self, id: RequestId) -> Option<Request> {
        let entry = self.entries.get_mut(id.slot() as usize)?;
        let request = entry.request.take_if(|_| entry.generation == id.generation())?;
        self.free.push(id.slot());
        Some(request)
    }

    /// Requests with their slots.
    pub(crate) fn iter_with_slots(&self) -> impl Iterator<Item = (usize, &Request)> {
        let entries = self.entries.iter().enumerate();
        entries.filter_map(|(slot, entry)| Some((slot, entry.request.as_ref()?)))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Request> {
        self.entries.iter().filter_map(|entry| entry.request.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_used_again_and_the_old_name_means_nothing_then() {
        let request =
            |arrived| Request { arrived, deadline: None, model: 0, tenant: 0, rows: 1, part: Part::None };
        let mut requests = InFlight::default();
        let first = requests.insert(request(1));
        assert_eq!(requests.remove(first), Some(request(1)));
        assert_eq!(requests.remove(first), None);
        let second = requests.insert(request(2));
        assert_eq!((second.slot(), second == first), (first.slot(), false));
        assert_eq!(requests.get(first), None);
        assert_eq!(requests.remove(first), None);
        assert_eq!(requests.iter().count(), 1);
    }
}
