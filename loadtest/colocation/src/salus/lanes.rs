//! The memory of a GPU as Salus divides it (section 3.3.2): a persistent part for each job, and lanes for what lives as long as an
//! iteration. The jobs of a lane run one after the other in it, so a lane is as large as the largest of them needs.

/// A job in a lane.
#[derive(Clone, Copy, Debug)]
struct Resident {
    job: usize,
    persistent_mb: f64,
    ephemeral_mb: f64,
}

/// Jobs with memory. The persistent memory of all jobs and the largest ephemeral memory of each lane together never exceed the capacity.
#[derive(Debug)]
pub struct Lanes {
    capacity_mb: f64,
    lanes_max: usize,
    lanes: Vec<Vec<Resident>>,
}

fn size(lane: &[Resident]) -> f64 {
    lane.iter().map(|resident| resident.ephemeral_mb).fold(0.0, f64::max)
}

impl Lanes {
    /// An empty GPU with at most a number of lanes, at least 1.
    #[must_use]
    pub fn new(capacity_mb: f64, lanes_max: usize) -> Self {
        Self { capacity_mb, lanes_max, lanes: Vec::new() }
    }

    /// Puts a job into a lane if it fits: a new lane, else the smallest that is large enough, else the one that grows least.
    pub fn admit(&mut self, job: usize, persistent_mb: f64, ephemeral_mb: f64) -> bool {
        let resident = Resident { job, persistent_mb, ephemeral_mb };
        let free = self.capacity_mb - self.used_mb() - persistent_mb;
        let empty = self.lanes.iter().position(Vec::is_empty);
        let may_open = self.lanes.iter().filter(|lane| !lane.is_empty()).count() < self.lanes_max;
        if ephemeral_mb <= free && may_open {
            match empty.and_then(|lane| self.lanes.get_mut(lane)) {
                Some(lane) => lane.push(resident),
                None => self.lanes.push(vec![resident]),
            }
            return true;
        }
        let used = self.lanes.iter_mut().filter(|lane| !lane.is_empty());
        let grows = |lane: &Vec<Resident>| (ephemeral_mb - size(lane)).max(0.0);
        let best = used.min_by(|one, other| {
            grows(one).total_cmp(&grows(other)).then_with(|| size(one).total_cmp(&size(other)))
        });
        match best {
            Some(lane) if grows(lane) <= free => {
                lane.push(resident);
                true
            }
            _ => false,
        }
    }

    /// Removes a job. Its lane shrinks to what the others need.
    pub fn release(&mut self, job: usize) {
        for lane in &mut self.lanes {
            lane.retain(|resident| resident.job != job);
        }
    }

    /// Memory that is taken, in MB: persistent memory and lanes.
    #[must_use]
    pub fn used_mb(&self) -> f64 {
        let persistent: f64 = self.lanes.iter().flatten().map(|resident| resident.persistent_mb).sum();
        persistent + self.lanes.iter().map(|lane| size(lane)).sum::<f64>()
    }

    /// Number of lanes, empty ones included; they are numbered from 0.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lanes.len()
    }

    /// Number of jobs in all lanes.
    #[must_use]
    pub fn jobs(&self) -> usize {
        self.lanes.iter().map(Vec::len).sum()
    }

    /// Jobs of a lane in the order of their admission.
    #[must_use]
    pub fn jobs_of(&self, lane: usize) -> Vec<usize> {
        self.lanes.get(lane).into_iter().flatten().map(|resident| resident.job).collect()
    }
}
