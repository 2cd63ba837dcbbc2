//! Time quotas: which lanes of a device may run now.
//!
//! FaST-GShare (Gu et al., ICPP 2023) gives a lane a share of the SMs and, in every window, a guaranteed and a largest
//! time on them (request and limit). A lane needs a token for a batch. Several lanes of a device hold tokens at once,
//! as long as their units fit. Of the lanes that wait, the one that lacks most of its guaranteed time goes first; this
//! order is from memory of the paper and could not be checked against it.
//!
//! The paper stops a lane between kernels. Here a batch is never interrupted, so the order alone guarantees nothing: a
//! wide lane would wait for narrow ones forever. Therefore each lane also has a *place* for its guaranteed time in the
//! window, and the places of a device never need more units than it has. A lane gets a token if
//!
//! 1. its batch stays within its limit for this window,
//! 2. its units are free now, and
//! 3. what its batch takes outside its own place leaves the places of waiting lanes free while it runs.
//!
//! A lane that waits when its place begins therefore gets its guaranteed time, whatever the others do. All other time
//! goes to the lanes that wait. Batches that take longer than planned delay other lanes, and count against the limit.

mod account;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use invariant::expected;

use crate::{ConfigError, LaneId, Nanos};

use self::account::Account;

/// Units of a device that lanes with quotas compete for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaUnits {
    /// A number of units: any of the device's (MPS).
    Any,
    /// Certain units, from this one on (cores, green contexts).
    From(u32),
}

/// Share of a device and of its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeQuota {
    /// Number of the device. Lanes of one device compete for its units.
    pub device: u32,
    /// Units of the device.
    pub device_units: u32,
    /// Units that the lane takes while it runs.
    pub units: u32,
    /// Which ones.
    pub which: QuotaUnits,
    /// Windows follow one another, the first one starts at time 0.
    pub window: Nanos,
    /// Start of the lane's place in the window.
    pub offset: Nanos,
    /// Time that is guaranteed in every window: the length of its place.
    pub request: Nanos,
    /// Most time in a window, at least the request.
    pub limit: Nanos,
    /// Time of its largest batch, at most the request.
    pub batch: Nanos,
    /// Rows of its largest batch. A single request of more rows runs alone.
    pub rows: u32,
}

impl TimeQuota {
    /// Returns the quota if its numbers fit together.
    ///
    /// # Errors
    /// Names the field.
    pub fn checked(self) -> Result<Self, ConfigError> {
        let fault = |field: &str, problem: String| Err(ConfigError::new(format!("quota.{field}"), problem));
        if self.units == 0 || self.units > self.device_units {
            let most = self.device_units;
            return fault("units", format!("is {}, expected 1 to {most}", self.units));
        }
        if self.rows == 0 {
            return fault("rows", "is 0, expected at least 1".to_owned());
        }
        if self.batch == Nanos::ZERO || self.batch > self.request {
            return fault(
                "batch",
                format!("is {}, expected above 0 and at most the request, {}", self.batch, self.request),
            );
        }
        if self.request > self.limit || self.limit > self.window {
            let (request, limit, window) = (self.request, self.limit, self.window);
            return fault(
                "limit",
                format!("is {limit}, expected from the request, {request}, to the window, {window}"),
            );
        }
        if self.offset.after(self.request) > self.window {
            return fault(
                "offset",
                format!("is {}, expected a place that ends within the window, {}", self.offset, self.window),
            );
        }
        Ok(self)
    }

    /// Whether it may use the time of its whole window.
    fn is_unlimited(&self) -> bool {
        self.limit >= self.window
    }

    /// How far into the window a time is.
    fn phase(&self, at: Nanos) -> Nanos {
        Nanos(at.0.checked_rem(self.window.0).unwrap_or(0))
    }

    /// How long the lane's place still lasts; zero outside it.
    fn left_of_place(&self, at: Nanos) -> Nanos {
        if self.request >= self.window {
            return Nanos::NEVER;
        }
        let phase = self.phase(at);
        if phase < self.offset { Nanos::ZERO } else { self.offset.after(self.request).since(phase) }
    }

    /// The next start of the lane's place after a time.
    fn next_place(&self, at: Nanos) -> Nanos {
        let phase = self.phase(at);
        let window = at.before(phase);
        if phase < self.offset {
            window.after(self.offset)
        } else {
            window.after(self.window).after(self.offset)
        }
    }

    fn window_end(&self, at: Nanos) -> Nanos {
        at.before(self.phase(at)).after(self.window)
    }

    /// Whether two lanes want the same units.
    fn competes_with(&self, other: &Self) -> bool {
        let end = |first: u32, quota: &Self| first.saturating_add(quota.units);
        match (self.which, other.which) {
            (QuotaUnits::From(own), QuotaUnits::From(theirs)) => {
                own < end(theirs, other) && theirs < end(own, self)
            }
            _ => true,
        }
    }

    /// Most units that competing lanes may use while this lane runs.
    fn others_max(&self) -> u32 {
        match self.which {
            QuotaUnits::Any => self.device_units.saturating_sub(self.units),
            QuotaUnits::From(_) => 0,
        }
    }
}

/// What lanes with quotas wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// When the lane gets a token at the latest, if batches take as long as planned.
    pub begins: Nanos,
    /// When to look again; `NEVER` if no request waits for the lane.
    pub look: Nanos,
}

/// The lanes of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Device {
    lanes: Vec<LaneId>,
    /// When a token may have to be given or withdrawn although no batch starts or ends.
    valid_until: Nanos,
}

/// The lanes with quotas and what they used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tokens {
    accounts: BTreeMap<LaneId, Account>,
    devices: BTreeMap<u32, Device>,
}

impl Tokens {
    pub(crate) fn is_empty(&self) -> bool {
        self.accounts.is_empty()
    }

    /// The quota of a lane that gets batches.
    pub(crate) fn quota(&self, lane: LaneId) -> Option<&TimeQuota> {
        self.accounts.get(&lane).filter(|account| !account.leaving).map(|account| &account.quota)
    }

    /// Sets or replaces the quota of a lane. What it used and what it runs still count.
    pub(crate) fn set(&mut self, now: Nanos, lane: LaneId, quota: TimeQuota) {
        match self.accounts.get_mut(&lane) {
            Some(account) if account.quota.device == quota.device => account.change(now, quota),
            _ => {
                self.remove(lane);
                self.accounts.insert(lane, Account::new(now, lane, quota));
                self.devices.entry(quota.device).or_default().lanes.push(lane);
            }
        }
    }

    /// The lane gets no further batch. Its units stay taken until its batch has ended.
    pub(crate) fn leave(&mut self, lane: LaneId) {
        let Some(account) = self.accounts.get_mut(&lane) else { return };
        (account.leaving, account.waits) = (true, None);
        if account.running.is_none() {
            self.remove(lane);
        }
    }

    /// Forgets a lane that failed or was removed.
    pub(crate) fn remove(&mut self, lane: LaneId) {
        let Some(account) = self.accounts.remove(&lane) else { return };
        if let Some(device) = self.devices.get_mut(&account.quota.device) {
            device.lanes.retain(|other| *other != lane);
            if device.lanes.is_empty() {
                self.devices.remove(&account.quota.device);
            }
        }
    }

    /// A lane started a batch that should end at `end`.
    pub(crate) fn started(&mut self, now: Nanos, lane: LaneId, end: Nanos) {
        let account = expected!(self.accounts.get_mut(&lane), "router.token_of_lane_without_quota");
        if let Some(account) = account {
            account.start(now, end);
        }
    }

    /// A lane's batch ended.
    pub(crate) fn ended(&mut self, now: Nanos, lane: LaneId) {
        let account = expected!(self.accounts.get_mut(&lane), "router.token_of_lane_without_quota");
        let Some(account) = account else { return };
        account.end(now);
        if account.leaving {
            self.remove(lane);
        }
    }

    /// Sets whether requests wait for a lane, and returns its device if that is new.
    pub(crate) fn set_waits(&mut self, now: Nanos, lane: LaneId, waits: bool) -> Option<u32> {
        let account = self.accounts.get_mut(&lane).filter(|account| !account.leaving)?;
        if account.waits.is_some() == waits {
            return None;
        }
        account.waits = waits.then_some(now);
        Some(account.quota.device)
    }

    /// The device of a lane.
    pub(crate) fn device_of(&self, lane: LaneId) -> Option<u32> {
        self.accounts.get(&lane).map(|account| account.quota.device)
    }

    /// Devices on which tokens may have to be given or withdrawn by now.
    pub(crate) fn due(&self, now: Nanos) -> impl Iterator<Item = u32> + '_ {
        self.devices.iter().filter(move |(_, device)| device.valid_until <= now).map(|(number, _)| *number)
    }

    /// Decides which lanes of a device have a token. `changed` gets the lanes for which that is new, or that wait for
    /// another time.
    pub(crate) fn refresh(&mut self, now: Nanos, device: u32, changed: &mut Vec<LaneId>) {
        let lanes = self.devices.get(&device).map(|device| device.lanes.clone()).unwrap_or_default();
        for lane in &lanes {
            if let Some(account) = self.accounts.get_mut(lane) {
                account.settle(now);
            }
        }
        let mut valid_until = Nanos::NEVER;
        for lane in lanes {
            let account = expected!(self.accounts.get(&lane), "router.quota_of_unknown_lane");
            let Some(account) = account else { continue };
            let wait = (!self.may_start(now, account)).then(|| {
                let look =
                    if account.waits.is_some() { self.next_change(now, account) } else { Nanos::NEVER };
                Wait { begins: self.begins(now, account), look }
            });
            valid_until = valid_until.min(match wait {
                Some(_) => self.next_change(now, account),
                None => self.expiry(now, account),
            });
            if account.wait != wait {
                changed.push(lane);
                if let Some(account) = self.accounts.get_mut(&lane) {
                    account.wait = wait;
                }
            }
        }
        if let Some(device) = self.devices.get_mut(&device) {
            device.valid_until = valid_until;
        }
    }

    /// What a lane waits for, as of the last refresh; `None` if it has a token or needs none.
    pub(crate) fn wait(&self, lane: LaneId) -> Option<Wait> {
        self.accounts.get(&lane)?.wait
    }

    /// The guaranteed time that a lane lacks in this window, nanoseconds; negative if it had more.
    pub(crate) fn gap(&self, lane: LaneId) -> i128 {
        let account = self.accounts.get(&lane);
        account.map_or(0, |account| i128::from(account.quota.request.0) - i128::from(account.used.0))
    }

    /// The lanes of a device that compete with a lane for units.
    fn peers<'a>(&'a self, account: &'a Account) -> impl Iterator<Item = &'a Account> {
        let quota = &account.quota;
        let lanes = self.devices.get(&quota.device).map(|device| device.lanes.as_slice()).unwrap_or_default();
        let others =
            lanes.iter().filter(|lane| **lane != account.lane).filter_map(|lane| self.accounts.get(lane));
        others.filter(|other| quota.competes_with(&other.quota))
    }

    fn may_start(&self, now: Nanos, account: &Account) -> bool {
        !account.leaving
            && account.running.is_none()
            && account.is_within_limit(now)
            && self.fits(now, account)
    }

    /// Rules 2 and 3.
    fn fits(&self, now: Nanos, account: &Account) -> bool {
        let quota = &account.quota;
        let running = self.peers(account).filter(|peer| peer.running.is_some());
        if units(running) > quota.others_max() {
            return false;
        }
        let (end, place_end) = (now.after(quota.batch), now.after(quota.left_of_place(now)));
        // A batch that ran into the lane's own next place would leave less than whole batches there.
        if place_end < end && quota.next_place(now) < end {
            return false;
        }
        // What others need only grows where the place of another one begins, or the own one ends.
        let places = self.peers(account).map(|peer| peer.quota.next_place(now));
        let mut times = places.chain([now, place_end]).filter(|at| *at < end);
        times.all(|at| {
            // In its own place, it waits only for batches that run, and for lanes that have waited for longer: a batch
            // outside its place left the places of those free, but not of those for which no request waited then.
            let goes_first =
                |peer: &&Account| at >= place_end || peer.runs_at(at) || peer.waits_longer_than(account);
            let taken = self.peers(account).filter(goes_first).filter(|peer| peer.takes_units(at));
            units(taken) <= quota.others_max()
        })
    }

    fn begins(&self, now: Nanos, account: &Account) -> Nanos {
        let quota = &account.quota;
        let soon = now.after(Nanos(1));
        let from = if account.is_within_limit(now) { now } else { quota.window_end(now) };
        if quota.left_of_place(from) >= quota.batch {
            let ends = self.peers(account).filter_map(|peer| peer.running.map(|running| running.end));
            return ends.min().unwrap_or(from).max(from).max(soon);
        }
        quota.next_place(from).max(soon)
    }

    /// When a lane without a token may get one, if no batch starts or ends.
    fn next_change(&self, now: Nanos, account: &Account) -> Nanos {
        let own = [account.quota.next_place(now), account.quota.window_end(now)];
        let peers = self.peers(account).flat_map(|peer| {
            let left = peer.quota.left_of_place(now);
            let begins = if left == Nanos::ZERO { peer.quota.next_place(now) } else { now };
            let ends = if left == Nanos::ZERO { begins.after(peer.quota.request) } else { now.after(left) };
            let running = peer.running.map_or(Nanos::NEVER, |running| running.end);
            [ends, peer.quota.window_end(now), running]
        });
        peers.chain(own).filter(|at| *at > now).min().unwrap_or(Nanos::NEVER)
    }

    /// When a lane may lose its token, if no batch starts or ends.
    fn expiry(&self, now: Nanos, account: &Account) -> Nanos {
        let quota = &account.quota;
        let own = [now.after(quota.left_of_place(now)), quota.next_place(now), quota.window_end(now)];
        let peers = self.peers(account).map(|peer| peer.quota.next_place(now));
        // A batch may still end exactly at that time.
        let last_start = |at: Nanos| at.before(quota.batch).after(Nanos(1));
        let ahead = own.into_iter().chain(peers).flat_map(|at| [last_start(at), at]).filter(|at| *at > now);
        ahead.min().unwrap_or(Nanos::NEVER)
    }

    /// R13: what is wrong about the lanes that run, if anything.
    pub(crate) fn violation(&self) -> Option<String> {
        let running = |account: &&Account| account.running.is_some();
        self.accounts.values().filter(running).find_map(|account| {
            let others = units(self.peers(account).filter(running));
            let most = account.quota.others_max();
            (others > most).then(|| {
                let (lane, own) = (account.lane, account.quota.units);
                format!("{lane:?} runs on {own} units, lanes that compete for them on {others}, expected at most {most}")
            })
        })
    }

    /// Lanes with quotas.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = LaneId> + '_ {
        self.accounts.keys().copied()
    }
}

fn units<'a>(accounts: impl Iterator<Item = &'a Account>) -> u32 {
    accounts.map(|account| account.quota.units).fold(0, u32::saturating_add)
}
