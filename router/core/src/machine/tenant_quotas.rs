//! Quotas of tenants: what admission, evaluation and dispatch ask of them. `tenant_accounts` at the crate's root keeps
//! the accounts.

use invariant::expected;

use crate::batch::Proposal;
use crate::event::Arrival;
use crate::machine::Router;
use crate::machine::admission::{least_time, row_time_of};
use crate::pool::Pool;
use crate::queue::{Queue, QueueKey};
use crate::request::{Request, Stage};
use crate::tenant_accounts::TenantAccounts;
use crate::{LaneClass, LaneId, Nanos, Tenant, TenantTable, TenantUse};

impl Router {
    /// What each tenant used, by number. Empty for a single tenant without a quota.
    pub fn tenant_uses(&self) -> impl Iterator<Item = TenantUse> + '_ {
        self.tenants.uses(self.now)
    }

    /// Time after which a request of this tenant would be within its quota again, if no other came before it; zero if
    /// it is.
    pub fn quota_wait(&self, tenant: Tenant) -> Nanos {
        self.tenants.within_from(self.now, tenant).since(self.now)
    }

    /// Changes weights and quotas. Reservations of queued requests are made again, and all queues are evaluated.
    pub(super) fn change_tenants(&mut self, table: &TenantTable) {
        let queued = self.requests.iter().filter(|request| request.stage == Stage::Queued);
        let queued: Vec<u32> = queued.map(|request| request.id.slot()).collect();
        for &slot in &queued {
            self.release(slot);
        }
        self.config.tenants = table.clone();
        self.shares.set_weights(table.weights());
        self.tenants.change(self.now, table);
        for &slot in &queued {
            self.reserve(slot);
        }
        let queues: Vec<u32> = self.queues.iter().map(|(slot, _)| slot).collect();
        self.queues.note_all(queues);
    }

    /// Whether there is space for one more borrowed request. Half of the space is kept for requests within quotas.
    pub(super) fn has_space_to_borrow(&self, arrival: &Arrival) -> bool {
        let bytes = self.queues.bytes().saturating_add(arrival.bytes);
        bytes <= self.config.queued_bytes_limit / 2
            && self.requests.len() < self.config.max_requests as usize / 2
    }

    /// Whether requests of a tenant run only on lanes that no other tenant wants.
    pub(super) fn is_over_quota(&self, tenant: Tenant) -> bool {
        self.tenants.is_limited() && self.tenants.over_until(self.now, tenant).is_some()
    }

    /// Until when a queue starts no batch because its tenant's quota is used up.
    pub(super) fn held_until(&self, queue: &Queue) -> Option<Nanos> {
        let tenant = queue.key.tenant;
        if !self.tenants.is_limited() || queue.key.borrowed || self.tenants.borrows(tenant) {
            return None;
        }
        self.tenants.over_until(self.now, tenant)
    }

    /// When a queue becomes more urgent because its tenant is within its quota again.
    pub(super) fn within_quota_from(&self, queue: &Queue) -> Nanos {
        if !self.tenants.is_limited() || queue.key.borrowed {
            return Nanos::NEVER;
        }
        self.tenants.over_until(self.now, queue.key.tenant).unwrap_or(Nanos::NEVER)
    }

    /// Whether requests of two queues may share a batch: borrowed requests make no other batch longer, and a tenant
    /// without tokens starts nothing.
    pub(super) fn may_share_batch(&self, own: &QueueKey, other: &QueueKey) -> bool {
        if own.class.is_best_effort() != other.class.is_best_effort() {
            return false;
        }
        if !self.tenants.is_limited() {
            return true;
        }
        own.borrowed == other.borrowed && (other.borrowed || !self.is_over_quota(other.tenant))
    }

    /// Notes how long a request within its quota can wait.
    pub(super) fn note_slack(&mut self, slot: u32) {
        let limits = self.tenants.is_limited() || self.has_best_effort;
        let dated = |request: &&Request| limits && request.deadline != Nanos::NEVER;
        let Some(request) = self.requests.at(slot).filter(dated) else { return };
        let row_bytes = request.bytes / u64::from(request.rows.max(1));
        let (now, tenant, rows) = (self.now, request.tenant, request.rows);
        let left = request.deadline.since(now);
        let Some(model) = expected!(self.models.get(request.model), "router.admitted_model_unknown") else {
            return;
        };
        if let Some(pool) = self.pools.get_mut(model.pool) {
            let slack = left.before(least_time(model, pool, rows, row_bytes));
            pool.slack.came(now, tenant, slack);
        }
    }

    /// The batch of a queue, limited so that a borrowed one takes at most half of the slack that recent requests of other
    /// tenants on the lane had, and a best-effort one of all requests: a batch that has started is not interrupted. `None` if not even
    /// one request fits. A best-effort batch that can be preempted is halved each time that it was, and then pauses.
    pub(super) fn within_slack(
        &self,
        slot: u32,
        proposal: &Proposal,
        (lane, lane_class): (LaneId, LaneClass),
    ) -> Option<Proposal> {
        let queue = self.queues.get(slot)?;
        let tenant = queue.key.tenant;
        if !(queue.key.borrowed || self.is_over_quota(tenant)) {
            return Some(*proposal);
        }
        let (best_effort, model) = (queue.key.class.is_best_effort(), self.model(queue.key.model)?);
        let lane = self.lane(lane)?;
        let first = queue.waiting.get(proposal.skip as usize).or(queue.head())?;
        if best_effort && self.may_yield(lane, model) {
            // Each time that it was preempted, the moments that lanes are idle were too short for its batch.
            let request = self.requests.at(first.slot).filter(|request| request.pauses_until <= self.now)?;
            let take = proposal.take >> request.returned.min(31);
            return Some(Proposal { take: take.max(first.rows), ..*proposal });
        }
        let pools = lane.pools.iter().filter_map(|&pool| self.pools.get(pool));
        let slack = |pool: &Pool| match best_effort {
            true => pool.slack.of_all(self.now),
            false => pool.slack.of_others(self.now, tenant),
        };
        let Some(slack) = pools.filter_map(slack).min() else {
            return Some(*proposal);
        };
        let cost = model.costs.on(lane_class);
        let take = cost.largest_within(Nanos(slack.0 / 2), queue.row_bytes(), proposal.take);
        (take >= first.rows).then_some(Proposal { take, ..*proposal })
    }

    /// Reserves lane time for a request that starts to wait: the least that it can take.
    pub(super) fn reserve(&mut self, slot: u32) {
        if !self.tenants.is_limited() {
            return;
        }
        let Some(request) = expected!(self.requests.at(slot), "router.queued_request_unknown") else {
            return;
        };
        let (tenant, rows) = (request.tenant, u64::from(request.rows));
        let row_bytes = request.bytes / rows.max(1);
        let model = self.model(request.model);
        let pool = model.and_then(|model| self.pools.get(model.pool));
        let row_time = model.zip(pool).map_or(0, |(model, pool)| row_time_of(model, pool, row_bytes));
        let time = if request.borrowed { 0 } else { row_time.saturating_mul(rows) };
        let reserved = self.tenants.reserve(tenant, Nanos(time));
        if let Some(request) = self.requests.at_mut(slot) {
            request.counted_time = reserved;
        }
    }

    /// Returns what was reserved for a request that no longer waits.
    pub(super) fn release(&mut self, slot: u32) {
        if !self.tenants.is_limited() {
            return;
        }
        if let Some(request) = self.requests.at_mut(slot) {
            let reserved = std::mem::take(&mut request.counted_time);
            if !request.borrowed {
                self.tenants.release(request.tenant, reserved);
            }
        }
    }

    /// Corrects the charges of a batch that ended to what it took from `started` until now.
    pub(super) fn settle_batch(&mut self, slot: u32, started: Nanos) {
        if !self.tenants.is_on() {
            return;
        }
        let Some(batch) = expected!(self.batches.at(slot), "router.reported_batch_unknown") else { return };
        let (time, rows) = (self.now.since(started), u64::from(batch.rows.max(1)));
        // Members that were cancelled while the batch ran were settled then.
        for &id in &batch.members {
            if let Some(request) = self.requests.get(id) {
                let share = Nanos(time.0.saturating_mul(u64::from(request.rows)) / rows);
                self.tenants.end(self.now, request, share);
            }
        }
    }

    /// Settles a request that is cancelled while its batch runs, at the expected time: the measured one comes too late.
    pub(super) fn settle_cancelled(&mut self, slot: u32) {
        if !self.tenants.is_on() {
            return;
        }
        let running = |request: &&Request| matches!(request.stage, Stage::InFlight { .. });
        if let Some(request) = self.requests.at(slot).filter(running) {
            self.tenants.end(self.now, request, request.counted_time);
        }
    }
}

impl TenantAccounts {
    /// A request starts, and its share of the batch should take this long.
    pub(super) fn start(&mut self, now: Nanos, request: &mut Request, share: Nanos) {
        if !self.is_on() {
            return;
        }
        // What a tenant without tokens starts is borrowed, also if it was admitted within the quota.
        request.borrowed |= self.borrows(request.tenant) && self.over_until(now, request.tenant).is_some();
        request.counted_time = share;
        if !request.borrowed {
            self.charge(now, request.tenant, share);
        }
    }

    fn end(&mut self, now: Nanos, request: &Request, measured: Nanos) {
        let charged = (!request.borrowed).then_some(request.counted_time);
        self.settle(now, request.tenant, charged, measured);
    }
}
