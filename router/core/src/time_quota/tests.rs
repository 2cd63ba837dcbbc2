use proptest::prelude::*;

use super::*;

const WINDOW: u64 = 1_000;
const UNITS: u32 = 24;
const WINDOWS: u64 = 8;

fn quota(units: u32, offset: u64, request: u64) -> TimeQuota {
    TimeQuota {
        device: 0,
        device_units: UNITS,
        units,
        which: QuotaUnits::Any,
        window: Nanos(WINDOW),
        offset: Nanos(offset),
        request: Nanos(request),
        limit: Nanos(WINDOW),
        batch: Nanos(request.min(20)),
        rows: 1,
    }
}

/// A batch that ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ran {
    lane: u32,
    from: u64,
    to: u64,
}

/// Lanes with a device of their own kind: batches take as long as planned.
struct World {
    tokens: Tokens,
    quotas: Vec<TimeQuota>,
    now: u64,
    ends: Vec<Option<u64>>,
    began: Vec<u64>,
    ran: Vec<Ran>,
}

impl World {
    fn new(quotas: &[TimeQuota]) -> Self {
        let mut tokens = Tokens::default();
        for (lane, quota) in (0..).zip(quotas) {
            tokens.set(Nanos::ZERO, LaneId(lane), quota.checked().unwrap());
        }
        let (ends, began) = (vec![None; quotas.len()], vec![0; quotas.len()]);
        Self { tokens, quotas: quotas.to_vec(), now: 0, ends, began, ran: Vec::new() }
    }

    fn refresh(&mut self) {
        self.tokens.refresh(Nanos(self.now), 0, &mut Vec::new());
    }

    /// Starts what may start, in the order of the gaps, of the lanes for which requests wait.
    fn start(&mut self, waits: impl Fn(usize, u64) -> bool) {
        for lane in 0..self.quotas.len() {
            self.tokens.set_waits(Nanos(self.now), LaneId(lane as u32), waits(lane, self.now));
        }
        self.refresh();
        loop {
            let lanes = (0..self.quotas.len()).filter(|lane| waits(*lane, self.now));
            let free = lanes.filter(|lane| self.tokens.wait(LaneId(*lane as u32)).is_none());
            let Some(lane) = free.max_by_key(|lane| self.tokens.gap(LaneId(*lane as u32))) else { return };
            let end = self.now + self.quotas[lane].batch.0;
            self.tokens.started(Nanos(self.now), LaneId(lane as u32), Nanos(end));
            (self.ends[lane], self.began[lane]) = (Some(end), self.now);
            self.refresh();
            assert_eq!(self.tokens.violation(), None);
        }
    }

    fn run(mut self, until: u64, waits: impl Fn(usize, u64) -> bool, changes: &[u64]) -> Vec<Ran> {
        while self.now < until {
            for lane in 0..self.quotas.len() {
                if self.ends[lane] == Some(self.now) {
                    self.ends[lane] = None;
                    self.tokens.ended(Nanos(self.now), LaneId(lane as u32));
                    self.ran.push(Ran { lane: lane as u32, from: self.began[lane], to: self.now });
                }
            }
            self.start(&waits);
            let looks = (0..self.quotas.len()).filter(|lane| waits(*lane, self.now));
            let looks = looks.filter_map(|lane| Some(self.tokens.wait(LaneId(lane as u32))?.look.0));
            let ends = self.ends.iter().flatten().copied();
            let changes = changes.iter().copied().chain([until]);
            self.now = looks.chain(ends).chain(changes).filter(|at| *at > self.now).min().unwrap();
        }
        self.ran
    }
}

/// Time that a lane ran in `[from, to)`.
fn used(ran: &[Ran], lane: u32, from: u64, to: u64) -> u64 {
    let own = ran.iter().filter(|ran| ran.lane == lane);
    own.map(|ran| ran.to.min(to).saturating_sub(ran.from.max(from))).sum()
}

/// The eight pods of the packing experiment of FaST-GShare, on a device of 50 units: two of BERT, two of RNNT, four of
/// ResNet.
fn pods() -> Vec<TimeQuota> {
    let pod = |units, offset, request| TimeQuota { device_units: 50, ..quota(units, offset, request) };
    let small = (0..4).map(|_| pod(6, 600, 400));
    [pod(25, 0, 600), pod(25, 0, 600), pod(12, 600, 400), pod(12, 600, 400)]
        .into_iter()
        .chain(small)
        .collect()
}

#[test]
fn eight_pods_on_one_device_all_get_their_quota_when_all_want_more() {
    let quotas = pods();
    let ran = World::new(&quotas).run(WINDOWS * WINDOW, |_, _| true, &[]);
    for (lane, quota) in (0..).zip(&quotas) {
        for window in 1..WINDOWS - 1 {
            let used = used(&ran, lane, window * WINDOW, (window + 1) * WINDOW);
            assert!(
                used >= quota.request.0,
                "lane {lane} ran {used} of {} in window {window}",
                quota.request.0
            );
        }
    }
}

#[test]
fn time_that_others_leave_goes_to_a_lane_that_waits_up_to_its_limit() {
    let quotas = [TimeQuota { limit: Nanos(700), ..quota(24, 0, 400) }, quota(24, 400, 600)];
    let alone = World::new(&quotas).run(10 * WINDOW, |lane, _| lane == 0, &[]);
    for window in 0..9 {
        assert_eq!(used(&alone, 0, window * WINDOW, (window + 1) * WINDOW), 700);
    }
    let both = World::new(&quotas).run(10 * WINDOW, |_, _| true, &[]);
    assert_eq!(used(&both, 0, WINDOW, 2 * WINDOW), 400);
    assert_eq!(used(&both, 1, WINDOW, 2 * WINDOW), 600);
}

#[test]
fn the_lane_that_lacks_most_of_its_quota_goes_first() {
    // Both want the hole that no place covers, [600, 1000), and only one fits.
    let quotas = [quota(24, 0, 200), quota(24, 200, 400)];
    let late = |_: usize, at: u64| at >= 600;
    let ran = World::new(&quotas).run(1_000, late, &[600]);
    assert_eq!(ran.first().map(|ran| (ran.lane, ran.from)), Some((1, 600)));
    assert!(used(&ran, 0, 600, 1_000) > 0 && used(&ran, 1, 600, 1_000) > used(&ran, 0, 600, 1_000));
}

#[test]
fn lanes_on_certain_units_wait_for_those_units_only() {
    let on = |first, offset| TimeQuota { which: QuotaUnits::From(first), ..quota(8, offset, 500) };
    let ran = World::new(&[on(0, 0), on(4, 500), on(16, 0)]).run(10 * WINDOW, |_, _| true, &[]);
    let overlap = |one: u32, other: u32| {
        let own = ran.iter().filter(|ran| ran.lane == one);
        own.map(|own| used(&ran, other, own.from, own.to)).sum::<u64>()
    };
    assert_eq!(overlap(0, 1), 0);
    assert_eq!((0..2).map(|lane| used(&ran, lane, 0, 9 * WINDOW)).collect::<Vec<_>>(), [4_500, 4_500]);
    assert_eq!(used(&ran, 2, 0, 9 * WINDOW), 9 * WINDOW, "no other lane competes with it");
}

#[test]
fn time_over_the_limit_counts_in_the_next_window() {
    let quota = TimeQuota { limit: Nanos(400), ..quota(24, 0, 400) };
    let mut tokens = Tokens::default();
    tokens.set(Nanos::ZERO, LaneId(0), quota);
    let may_start = |tokens: &mut Tokens, now| {
        tokens.refresh(Nanos(now), 0, &mut Vec::new());
        tokens.wait(LaneId(0)).is_none()
    };
    assert!(may_start(&mut tokens, 0));
    tokens.started(Nanos::ZERO, LaneId(0), Nanos(20));
    tokens.ended(Nanos(700), LaneId(0));
    assert!(!may_start(&mut tokens, 900));
    assert!(may_start(&mut tokens, 1_000) && tokens.gap(LaneId(0)) == 100);
    // A batch that hangs for a minute stops its lane for one more window.
    tokens.started(Nanos(1_000), LaneId(0), Nanos(1_020));
    tokens.ended(Nanos(60_000_500), LaneId(0));
    assert!(!may_start(&mut tokens, 60_000_600));
    assert!(may_start(&mut tokens, 60_002_000));
}

#[test]
fn a_lane_that_leaves_holds_its_units_until_its_batch_has_ended() {
    let mut tokens = Tokens::default();
    tokens.set(Nanos::ZERO, LaneId(0), quota(24, 0, 500));
    tokens.set(Nanos::ZERO, LaneId(1), quota(24, 500, 500));
    tokens.started(Nanos::ZERO, LaneId(0), Nanos(20));
    tokens.leave(LaneId(0));
    tokens.refresh(Nanos(1), 0, &mut Vec::new());
    assert!(tokens.wait(LaneId(1)).is_some());
    tokens.ended(Nanos(20), LaneId(0));
    tokens.refresh(Nanos(20), 0, &mut Vec::new());
    assert_eq!(tokens.wait(LaneId(1)), None);
    assert_eq!(tokens.quota(LaneId(0)), None);
}

#[test]
fn invalid_quotas_are_rejected_by_name() {
    let refused = |quota: TimeQuota| quota.checked().unwrap_err().to_string();
    let sound = quota(8, 100, 400);
    assert_eq!(refused(TimeQuota { units: 25, ..sound }), "quota.units: is 25, expected 1 to 24");
    assert_eq!(refused(TimeQuota { rows: 0, ..sound }), "quota.rows: is 0, expected at least 1");
    assert_eq!(
        refused(TimeQuota { batch: Nanos(401), ..sound }),
        "quota.batch: is 401ns, expected above 0 and at most the request, 400ns"
    );
    assert_eq!(
        refused(TimeQuota { limit: Nanos(399), ..sound }),
        "quota.limit: is 399ns, expected from the request, 400ns, to the window, 1µs"
    );
    assert_eq!(
        refused(TimeQuota { offset: Nanos(601), ..sound }),
        "quota.offset: is 601ns, expected a place that ends within the window, 1µs"
    );
}

/// Divides a device and a window into places, at random.
fn divided(splits: &[(bool, u32, u8)]) -> Vec<(u32, u64, u64)> {
    let mut places = vec![(UNITS, 0, WINDOW)];
    for (across, position, which) in splits {
        let at = usize::from(*which) % places.len();
        let (units, offset, request) = places[at];
        let share = |whole: u64| whole * u64::from(position % 9 + 1) / 10;
        let (first, second) = if *across {
            let left = share(request);
            ((units, offset, left), (units, offset + left, request - left))
        } else {
            let low = share(u64::from(units)) as u32;
            ((low, offset, request), (units - low, offset, request))
        };
        if [first, second].iter().all(|(units, _, request)| *units > 0 && *request >= 40) {
            places[at] = first;
            places.push(second);
        }
    }
    places
}

fn places() -> impl Strategy<Value = Vec<TimeQuota>> {
    let splits = prop::collection::vec((any::<bool>(), any::<u32>(), any::<u8>()), 0..10);
    (splits, prop::collection::vec((10_u64..=40, 0_u64..=1_000), 11)).prop_map(|(splits, details)| {
        let places = divided(&splits).into_iter().zip(details);
        let quota = |((units, offset, request), (batch, more)): ((u32, u64, u64), (u64, u64))| TimeQuota {
            limit: Nanos(request + (WINDOW - request) * more / 1_000),
            batch: Nanos(batch.min(request)),
            ..quota(units, offset, request)
        };
        places.map(quota).collect()
    })
}

/// For each lane, after how long its requests come and go again.
fn phases() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(50_u64..3_000, 11)
}

proptest! {
    /// Lanes for which requests wait throughout a window run for their request in it, less than one batch short.
    /// Whether requests wait for the others, and when, changes nothing about that.
    #[test]
    fn a_lane_gets_its_request_in_every_window(quotas in places(), phases in phases()) {
        let always = |lane: usize| lane.is_multiple_of(2);
        let waits = |lane: usize, at: u64| always(lane) || (at / phases[lane]).is_multiple_of(2);
        let changes: Vec<u64> =
            phases.iter().flat_map(|phase| (1..WINDOWS * WINDOW / phase).map(move |n| n * phase)).collect();
        let ran = World::new(&quotas).run(WINDOWS * WINDOW, waits, &changes);
        for (lane, quota) in (0..).zip(&quotas).filter(|(lane, _)| always(*lane as usize)) {
            for window in 1..WINDOWS - 1 {
                let used = used(&ran, lane, window * WINDOW, (window + 1) * WINDOW);
                prop_assert!(used + quota.batch.0 > quota.request.0, "lane {lane} ran {used} of {quota:?}");
            }
        }
    }

    /// No lane exceeds its limit in any window, and no device its units (asserted at every start).
    #[test]
    fn a_lane_keeps_its_limit_in_every_window(quotas in places(), phases in phases()) {
        let waits = |lane: usize, at: u64| (at / phases[lane]).is_multiple_of(2);
        let changes: Vec<u64> =
            phases.iter().flat_map(|phase| (1..WINDOWS * WINDOW / phase).map(move |n| n * phase)).collect();
        let ran = World::new(&quotas).run(WINDOWS * WINDOW, waits, &changes);
        for (lane, quota) in (0..).zip(&quotas) {
            for window in 0..WINDOWS {
                let used = used(&ran, lane, window * WINDOW, (window + 1) * WINDOW);
                prop_assert!(used <= quota.limit.0, "lane {lane} ran {used} of {quota:?}");
            }
        }
    }

    /// A device does not idle: a lane for which requests wait runs whenever it alone has requests, up to its limit, but
    /// for the time before its place in which no whole batch fits and the end of the window.
    #[test]
    fn a_lane_alone_runs_up_to_its_limit(quotas in places(), which in any::<prop::sample::Index>()) {
        let alone = which.index(quotas.len());
        let ran = World::new(&quotas).run(WINDOWS * WINDOW, |lane, _| lane == alone, &[]);
        let quota = quotas[alone];
        for window in 1..WINDOWS - 1 {
            let used = used(&ran, alone as u32, window * WINDOW, (window + 1) * WINDOW);
            prop_assert!(used + 3 * quota.batch.0 > quota.limit.0, "ran {used} of {quota:?}");
        }
    }

    /// The same lanes and requests get the same tokens.
    #[test]
    fn tokens_are_deterministic(quotas in places()) {
        let run = || World::new(&quotas).run(5 * WINDOW, |_, _| true, &[]);
        prop_assert_eq!(run(), run());
    }
}
