//! Elections in a simulated world: slow and lost replies, paused processes, clocks of different speed, an unreachable store
//! and a deleted record.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;

use super::{Effect, Election, Event, Holder, Record, Settings, Unreadable, Write, WriteReply};
use crate::epoch::Fence;

type Millis = u64;
/// The shell abandons a request after this time, and replies that its result is unknown.
const TIMEOUT: Millis = 2_000;
/// Length of the part with faults, and of the part without them after it.
const FAULTY: Millis = 240_000;
const QUIET: Millis = 60_000;

/// A span of time in which something fails.
#[derive(Clone, Copy, Debug)]
struct Span {
    from: Millis,
    length: Millis,
}

impl Span {
    const fn end(self) -> Millis {
        self.from + self.length
    }
    fn has(self, at: Millis) -> bool {
        (self.from..self.end()).contains(&at)
    }
}

#[derive(Clone, Debug)]
struct World {
    /// Speed of each candidate's clock in parts per thousand.
    speeds: Vec<u64>,
    /// Advance of each candidate's clock.
    offsets: Vec<Millis>,
    pauses: Vec<(usize, Span)>,
    outages: Vec<Span>,
    deletions: Vec<Millis>,
    /// A stopped candidate starts again under a new identity.
    stops: Vec<(usize, Millis)>,
    /// Delay of requests, delay of replies, and whether the reply is lost, in the order of requests.
    network: Vec<(Millis, Millis, bool)>,
}

fn worlds() -> impl Strategy<Value = World> {
    let span = |longest: Millis| (0..FAULTY, 1..longest).prop_map(|(from, length)| Span { from, length });
    let candidates = 3_usize;
    let delay = prop_oneof![8 => 1..50_u64, 2 => 50..2_500_u64, 1 => 2_500..30_000_u64];
    let network = (delay.clone(), delay, prop::bool::weighted(0.1));
    (
        prop::collection::vec(990..=1_010_u64, candidates),
        prop::collection::vec(0..1_000_000_u64, candidates),
        prop::collection::vec((0..candidates, span(60_000)), 0..6),
        prop::collection::vec(span(40_000), 0..3),
        prop::collection::vec(0..FAULTY, 0..3),
        prop::collection::vec((0..candidates, 0..FAULTY), 0..4),
        prop::collection::vec(network, 1..200),
    )
        .prop_map(|(speeds, offsets, pauses, outages, deletions, stops, network)| World {
            speeds,
            offsets,
            pauses,
            outages,
            deletions,
            stops,
            network,
        })
}

#[derive(Clone, Debug)]
enum Happening {
    /// Something reaches a candidate.
    To(usize, Event),
    /// A timer of a candidate ends, unless it was set again since.
    Timer(usize, u64),
    /// A request reaches the store.
    At(Box<Request>),
    Delete,
    /// A plan of this epoch reaches the node.
    Plan(u64),
}

#[derive(Clone, Debug)]
struct Request {
    candidate: usize,
    asks: Effect,
    /// When the reply arrives. `None`: the shell has replied already, or will, that the result is unknown.
    reply_at: Option<Millis>,
}

struct Run {
    world: World,
    settings: Settings,
    now: Millis,
    order: u64,
    queue: BTreeMap<(Millis, u64), Happening>,
    candidates: Vec<Election>,
    timers: Vec<u64>,
    generation: u64,
    record: Option<Record>,
    writes: u64,
    requests: usize,
    leaders: Vec<u64>,
    /// Epoch of the plan in the store, and the node's fence.
    plan: u64,
    fence: Fence,
    accepted: Vec<u64>,
}

impl Run {
    fn new(world: World) -> Self {
        let settings = Settings::default();
        let mut run = Self {
            settings,
            now: 0,
            order: 0,
            queue: BTreeMap::new(),
            candidates: Vec::new(),
            timers: vec![0; world.speeds.len()],
            generation: 0,
            record: None,
            writes: 0,
            requests: 0,
            leaders: Vec::new(),
            plan: 0,
            fence: Fence::default(),
            accepted: Vec::new(),
            world,
        };
        for candidate in 0..run.world.speeds.len() {
            let election = run.election(candidate);
            run.candidates.push(election);
            run.push(0, Happening::To(candidate, Event::Tick));
        }
        for at in run.world.deletions.clone() {
            run.push(at, Happening::Delete);
        }
        for (candidate, at) in run.world.stops.clone() {
            run.push(at, Happening::To(candidate, Event::Stop));
        }
        run
    }

    fn election(&mut self, candidate: usize) -> Election {
        self.generation += 1;
        let identity = format!("{candidate}-{}", self.generation);
        Election::new(self.settings, identity, self.clock(candidate))
    }

    fn push(&mut self, at: Millis, happening: Happening) {
        self.order += 1;
        self.queue.insert((at, self.order), happening);
    }

    fn clock(&self, candidate: usize) -> Duration {
        let (speed, offset) = (self.world.speeds[candidate], self.world.offsets[candidate]);
        Duration::from_micros(self.now * speed + offset * 1_000)
    }

    /// The moment at which a candidate's clock shows a time, rounded up.
    fn moment(&self, candidate: usize, shown: Duration) -> Millis {
        let elapsed = shown.as_micros() as u64 - self.world.offsets[candidate] * 1_000;
        elapsed.div_ceil(self.world.speeds[candidate]).max(self.now)
    }

    fn resumes(&self, candidate: usize) -> Millis {
        let paused = self.world.pauses.iter().filter(|(who, span)| *who == candidate && span.has(self.now));
        paused.map(|(_, span)| span.end()).max().unwrap_or(self.now)
    }

    fn unreachable(&self) -> bool {
        self.world.outages.iter().any(|span| span.has(self.now))
    }

    fn run(&mut self) {
        while let Some(((at, _), happening)) = self.queue.pop_first() {
            self.now = at;
            if at > FAULTY + QUIET {
                break;
            }
            self.at_most_one_leader();
            match happening {
                Happening::To(candidate, event) => self.candidate_gets(candidate, event),
                Happening::Timer(candidate, number) => self.timer(candidate, number),
                Happening::At(request) => self.store_gets(*request),
                Happening::Delete => self.record = None,
                Happening::Plan(epoch) => {
                    // The API server refuses a falling epoch, as the rule of the resource demands.
                    self.plan = self.plan.max(epoch);
                    if self.fence.admit(epoch).is_ok() {
                        self.accepted.push(epoch);
                    }
                }
            }
            self.at_most_one_leader();
        }
    }

    fn at_most_one_leader(&self) {
        let leading =
            |(who, election): (usize, &Election)| election.leads(self.clock(who)).map(|epoch| (who, epoch));
        let leaders: Vec<_> = self.candidates.iter().enumerate().filter_map(leading).collect();
        assert!(leaders.len() <= 1, "at {} ms several candidates lead: {leaders:?}", self.now);
    }

    fn candidate_gets(&mut self, candidate: usize, event: Event) {
        let resumes = self.resumes(candidate);
        if resumes > self.now {
            return self.push(resumes, Happening::To(candidate, event));
        }
        let now = self.clock(candidate);
        for effect in self.candidates[candidate].handle(now, event) {
            self.carry_out(candidate, effect);
        }
        if let Some(wakeup) = self.candidates[candidate].wakeup() {
            let at = self.moment(candidate, wakeup).max(self.now + 1);
            self.push(at, Happening::Timer(candidate, self.order + 1));
            self.timers[candidate] = self.order;
        }
    }

    fn timer(&mut self, candidate: usize, number: u64) {
        if self.timers[candidate] == number {
            self.candidate_gets(candidate, Event::Tick);
        }
    }

    fn carry_out(&mut self, candidate: usize, effect: Effect) {
        match effect {
            Effect::Lead { epoch } => {
                self.leaders.push(epoch);
                // The leader's plans may take long, longer than its term.
                let (delay, ..) = self.network();
                self.plan = self.plan.max(epoch);
                self.push(self.now + delay, Happening::Plan(epoch));
                self.push(self.now + 40_000, Happening::Plan(epoch));
            }
            Effect::StepDown(_) => {}
            Effect::Stopped => {
                self.candidates[candidate] = self.election(candidate);
                self.push(self.now + 1, Happening::To(candidate, Event::Tick));
            }
            asks @ (Effect::Read | Effect::ReadEpochs | Effect::Write(_)) => {
                let (there, back, lost) = self.network();
                let reply_at = (!lost && there + back <= TIMEOUT).then_some(self.now + there + back);
                if reply_at.is_none() {
                    self.push(self.now + TIMEOUT, Happening::To(candidate, failed(&asks)));
                }
                self.push(self.now + there, Happening::At(Box::new(Request { candidate, asks, reply_at })));
            }
        }
    }

    fn network(&mut self) -> (Millis, Millis, bool) {
        let (there, back, lost) = self.world.network[self.requests % self.world.network.len()];
        self.requests += 1;
        if self.now >= FAULTY { (5, 5, false) } else { (there, back, lost) }
    }

    fn store_gets(&mut self, request: Request) {
        let Request { candidate, asks, reply_at } = request;
        let reply = match asks {
            asks if self.unreachable() => failed(&asks),
            Effect::Read => Event::Read(Ok(self.record.clone())),
            Effect::ReadEpochs => Event::Epochs(Ok(self.plan)),
            Effect::Write(write) => Event::Written(self.write(write)),
            _ => return,
        };
        if let Some(at) = reply_at {
            self.push(at, Happening::To(candidate, reply));
        }
    }

    fn write(&mut self, write: Write) -> WriteReply {
        let version = self.record.as_ref().map(|record| record.version.clone());
        if version != write.expected {
            return WriteReply::Conflict;
        }
        self.writes += 1;
        let version = self.writes.to_string();
        self.record = Some(Record {
            holder: write.holder,
            renewed: "always the same".into(),
            duration: write.duration,
            transitions: write.transitions,
            epoch: write.epoch,
            version: version.clone(),
        });
        WriteReply::Stored(version)
    }
}

const fn failed(request: &Effect) -> Event {
    match request {
        Effect::Read => Event::Read(Err(Unreadable)),
        Effect::ReadEpochs => Event::Epochs(Err(Unreadable)),
        _ => Event::Written(WriteReply::Unknown),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn one_leader_growing_epochs_and_no_older_plan(world in worlds()) {
        let mut run = Run::new(world);
        run.run();
        prop_assert!(run.leaders.is_sorted_by(|earlier, later| earlier < later), "epochs: {:?}", run.leaders);
        prop_assert!(run.accepted.is_sorted(), "accepted: {:?}", run.accepted);
        let leading = (0..run.candidates.len()).filter(|who| run.candidates[*who].leads(run.clock(*who)).is_some());
        prop_assert_eq!(leading.count(), 1, "one candidate leads once all faults ended");
    }
}

fn calm() -> World {
    World {
        speeds: vec![1_000; 3],
        offsets: vec![0, 500_000, 7_000],
        pauses: Vec::new(),
        outages: Vec::new(),
        deletions: Vec::new(),
        stops: Vec::new(),
        network: vec![(5, 5, false)],
    }
}

#[test]
fn without_faults_the_first_leader_stays() {
    let mut run = Run::new(calm());
    run.run();
    assert_eq!(run.leaders, [1]);
    assert_eq!(run.record.unwrap().transitions, 1);
}

#[test]
fn a_released_record_is_taken_over_at_the_next_read() {
    let mut run = Run::new(calm());
    while run.leaders.is_empty() {
        let ((at, _), happening) = run.queue.pop_first().unwrap();
        run.now = at;
        match happening {
            Happening::To(candidate, event) => run.candidate_gets(candidate, event),
            Happening::Timer(candidate, number) => run.timer(candidate, number),
            Happening::At(request) => run.store_gets(*request),
            Happening::Delete | Happening::Plan(_) => {}
        }
    }
    let clocks: Vec<_> = (0..3).map(|who| run.clock(who)).collect();
    let leader = (0..3).find(|who| run.candidates[*who].leads(clocks[*who]).is_some()).unwrap();
    let stopped_at = run.now + 1_000;
    run.push(stopped_at, Happening::To(leader, Event::Stop));
    let mut led_again = None;
    while led_again.is_none() {
        let ((at, _), happening) = run.queue.pop_first().unwrap();
        run.now = at;
        match happening {
            Happening::To(candidate, event) => run.candidate_gets(candidate, event),
            Happening::Timer(candidate, number) => run.timer(candidate, number),
            Happening::At(request) => run.store_gets(*request),
            Happening::Delete | Happening::Plan(_) => {}
        }
        run.at_most_one_leader();
        led_again = (run.leaders.len() == 2).then_some(run.now);
    }
    assert!(led_again.unwrap() - stopped_at < 2_200, "{led_again:?}");
    assert_eq!(run.leaders, [1, 2]);
}

#[test]
fn a_lost_reply_does_not_end_a_term() {
    let mut world = calm();
    // Every seventh reply is lost, some of them replies to renewals.
    world.network = vec![
        (5, 5, false),
        (5, 5, false),
        (5, 5, false),
        (5, 5, true),
        (5, 5, false),
        (5, 5, false),
        (5, 5, false),
    ];
    let mut run = Run::new(world);
    run.run();
    assert_eq!(run.leaders.len(), 1, "epochs: {:?}", run.leaders);
}

#[test]
fn a_vacant_record_is_not_held_by_a_candidate() {
    let mut election = Election::new(Settings::default(), "a".into(), Duration::ZERO);
    assert_eq!(election.handle(Duration::ZERO, Event::Tick), [Effect::Read]);
    let effects = election.handle(Duration::ZERO, Event::Read(Ok(None)));
    let [Effect::Write(write)] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!((write.expected.as_deref(), &write.holder), (None, &Holder::Vacant));
    assert_eq!(election.holder(), None);
    assert_eq!(BTreeSet::from([election.leads(Duration::ZERO)]), BTreeSet::from([None]));
}
