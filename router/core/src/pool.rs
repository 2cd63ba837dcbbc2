//! Lanes that run the same models, and the queues that wait for one of them.

use invariant::expected;

use smallvec::SmallVec;

use crate::batch::{LaneEnd, PoolDemand};
use crate::heap::{Heap, Positions};
use crate::lane_set::LaneSet;
use crate::ordered::Ordered;
use crate::queue::Urgency;
use crate::rate::Load;
use crate::recent_slack::RecentSlack;
use crate::{LaneClass, LaneId, ModelLanes, Nanos};

/// Lane load is averaged over this long.
const LOAD_MEMORY: Nanos = Nanos::from_millis(250);

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pool {
    pub lanes: ModelLanes,
    /// Lanes that are up.
    pub up: LaneSet,
    /// Number of these lanes by class.
    pub lane_classes: SmallVec<[(LaneClass, u32); 1]>,
    /// Lanes that can take a batch. The smallest id is used first, so that the others stay idle and can be removed.
    pub free: LaneSet,
    /// Free lanes that run a best-effort batch, which is preempted.
    pub yielding: LaneSet,
    /// Lanes with a cycle, free or not.
    pub cycled: LaneSet,
    /// Busy lanes by expected end.
    pub ends: Ordered<LaneEnd>,
    /// Queues whose policy would fire, most urgent first.
    pub ready: Heap<Urgency>,
    /// Models that use it.
    pub models: u32,
    /// Whether it holds requests bound to its one lane. Such a pool exists as long as its lane.
    pub bound: bool,
    pub load: Load,
    pub demand: PoolDemand,
    /// How long requests within quotas could wait lately.
    pub slack: RecentSlack,
    /// The least that a policy of its models plans ahead; `NEVER` without models.
    pub ahead: Nanos,
    /// Queues that chose to wait although a lane was free. They are evaluated again when another lane becomes free.
    pub deferred: Vec<u32>,
    /// Whether it is in `Pools::noted`.
    noted: bool,
}

impl Pool {
    pub(crate) fn new(lanes: ModelLanes) -> Self {
        Self {
            lanes,
            up: LaneSet::default(),
            lane_classes: SmallVec::new(),
            free: LaneSet::default(),
            yielding: LaneSet::default(),
            cycled: LaneSet::default(),
            ends: Ordered::default(),
            ready: Heap::default(),
            models: 0,
            bound: false,
            load: Load::over(LOAD_MEMORY),
            demand: PoolDemand::default(),
            slack: RecentSlack::default(),
            ahead: Nanos::NEVER,
            deferred: Vec::new(),
            noted: false,
        }
    }

    pub(crate) fn busy_share(&self) -> f64 {
        f64::from(self.up.len() - self.free.len().min(self.up.len())) / f64::from(self.up.len().max(1))
    }

    /// Marks a lane as busy until `end`, or as free. `yields`: it runs a best-effort batch.
    pub(crate) fn lane_is(
        &mut self,
        now: Nanos,
        lane: LaneId,
        before: Option<Nanos>,
        (end, yields): (Option<Nanos>, bool),
    ) {
        self.load.was(now, self.busy_share());
        if let Some(at) = before {
            self.ends.remove((at, lane));
        }
        match end {
            Some(at) => {
                self.ends.insert(LaneEnd { at, lane });
                self.free.remove(lane);
            }
            None => {
                self.free.insert(lane);
            }
        }
        match end.is_none() && yields {
            true => self.yielding.insert(lane),
            false => self.yielding.remove(lane),
        };
    }

    /// Adds a lane of a class.
    pub(crate) fn joined(&mut self, lane: LaneId, lane_class: LaneClass) {
        if self.up.insert(lane) {
            match self.lane_classes.iter_mut().find(|(known, _)| *known == lane_class) {
                Some((_, lanes)) => *lanes += 1,
                None => self.lane_classes.push((lane_class, 1)),
            }
        }
    }

    /// The lane class of all its lanes, if it is the same.
    pub(crate) fn only_lane_class(&self) -> Option<LaneClass> {
        match self.lane_classes.as_slice() {
            [] => Some(LaneClass::default()),
            [(lane_class, _)] => Some(*lane_class),
            _ => None,
        }
    }

    pub(crate) fn forget(&mut self, now: Nanos, (lane, lane_class): (LaneId, LaneClass), end: Option<Nanos>) {
        self.load.was(now, self.busy_share());
        if self.up.contains(lane)
            && let Some((_, lanes)) = self.lane_classes.iter_mut().find(|(known, _)| *known == lane_class)
        {
            *lanes -= 1;
            self.lane_classes.retain(|(_, lanes)| *lanes > 0);
        }
        if let Some(at) = end {
            self.ends.remove((at, lane));
        }
        self.free.remove(lane);
        self.yielding.remove(lane);
        self.cycled.remove(lane);
        self.up.remove(lane);
    }

    /// A ready queue and a free lane for it, if both exist. Lanes with a cycle are matched by `cycle_match`.
    pub(crate) fn first_match(&self) -> Option<(Urgency, u32, LaneId)> {
        let (urgency, queue) = self.ready.first()?;
        let first = self.free.first()?;
        if !self.yielding.is_empty() {
            let others = |lane: &LaneId| !self.cycled.contains(*lane) && !self.yielding.contains(*lane);
            return Some((urgency, queue, self.free.iter().find(others).or_else(|| self.yielding.first())?));
        }
        let taken = self.cycled.contains(first);
        let lane = if taken { self.free.iter().find(|&lane| !self.cycled.contains(lane))? } else { first };
        Some((urgency, queue, lane))
    }
}

/// Pools by number. An unused pool is removed and its number is reused.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Pools {
    pools: Vec<Option<Pool>>,
    /// Position of each ready queue in the heap of its pool.
    positions: Positions,
    /// Pools in which a queue became ready or a lane became free during this event.
    noted: Vec<u32>,
}

impl Pools {
    pub(crate) fn get(&self, pool: u32) -> Option<&Pool> {
        self.pools.get(pool as usize).and_then(Option::as_ref)
    }

    pub(crate) fn get_mut(&mut self, pool: u32) -> Option<&mut Pool> {
        self.pools.get_mut(pool as usize).and_then(Option::as_mut)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Pool)> {
        (0..).zip(&self.pools).filter_map(|(id, pool)| Some((id, pool.as_ref()?)))
    }

    /// Number of pools and vacant places.
    pub(crate) fn slots(&self) -> usize {
        self.pools.len()
    }

    pub(crate) fn find(&self, lanes: &ModelLanes) -> Option<u32> {
        self.iter().find(|(_, pool)| pool.lanes == *lanes && !pool.bound).map(|(id, _)| id)
    }

    pub(crate) fn add(&mut self, pool: Pool) -> u32 {
        let vacant = self.pools.iter().position(Option::is_none).unwrap_or_else(|| {
            self.pools.push(None);
            self.pools.len() - 1
        });
        if let Some(entry) = self.pools.get_mut(vacant) {
            *entry = Some(pool);
        }
        u32::try_from(vacant).unwrap_or(u32::MAX)
    }

    pub(crate) fn remove(&mut self, pool: u32) {
        if let Some(entry) = self.pools.get_mut(pool as usize) {
            *entry = None;
        }
    }

    /// Notes that a queue of a pool became ready, or one of its lanes free.
    pub(crate) fn note(&mut self, id: u32) {
        if let Some(pool) =
            self.pools.get_mut(id as usize).and_then(Option::as_mut).filter(|pool| !pool.noted)
        {
            pool.noted = true;
            self.noted.push(id);
        }
    }

    /// The pools noted during this event.
    pub(crate) fn noted(&self) -> impl Iterator<Item = (u32, &Pool)> {
        self.noted.iter().filter_map(|&id| Some((id, self.get(id)?)))
    }

    pub(crate) fn nth_noted(&self, nth: usize) -> Option<u32> {
        self.noted.get(nth).copied()
    }

    pub(crate) fn forget_noted(&mut self) {
        while let Some(id) = self.noted.pop() {
            if let Some(pool) = self.get_mut(id) {
                pool.noted = false;
            }
        }
    }

    pub(crate) fn file(&mut self, pool: u32, queue: u32, urgency: Option<Urgency>) {
        let Some(entry) = expected!(
            self.pools.get_mut(pool as usize).and_then(Option::as_mut),
            "router.queue_of_unknown_pool"
        ) else {
            return;
        };
        match urgency {
            Some(urgency) => entry.ready.insert(urgency, queue, &mut self.positions),
            None => {
                entry.ready.remove(queue, &mut self.positions);
            }
        }
    }
}
