//! Tests of several pickers, joined by messages in memory.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::pick::{AWAY_AFTER, Settings, Update};
use crate::view::ModelView;

const PICKERS: u32 = 3;
const MODELS: u32 = 4;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn model(number: u32) -> String {
    format!("m{number}")
}

/// A message from a picker to another one.
#[derive(Clone, Debug)]
enum Message {
    Ask { key: u64, model: String, timeout: Option<Duration> },
    Ended { key: u64 },
    Answer { key: u64, answer: OwnerAnswer },
}

struct Member {
    picker: Picker,
    is_up: bool,
    is_frozen: bool,
    /// Tickets by key.
    tickets: BTreeMap<u64, Ticket>,
    /// Its keys of requests that others asked for, and theirs.
    asked: BTreeMap<u64, (u32, u64)>,
}

/// Pickers, and the messages between each two of them, in order.
struct World {
    now: Duration,
    members: Vec<Member>,
    links: BTreeMap<(u32, u32), VecDeque<Message>>,
    next_key: u64,
    /// What was decided on the requests of clients, with the picker of each.
    decided: BTreeMap<u64, Vec<Effect>>,
    clients: BTreeMap<u64, u32>,
}

/// A node for each model, with one lane. A batch takes 10 ms and 1 ms for each further row.
fn started(number: u32, now: Duration) -> Picker {
    let mut picker = Picker::new(Settings { number, ..Settings::default() }).unwrap();
    for name in (0..MODELS).map(model) {
        let node = picker.node(&format!("node-of-{name}")).unwrap();
        picker.planned(node, &name, 1.0).unwrap();
        let view = ModelView {
            ready: true,
            lanes: 1,
            row_time: Duration::from_micros(2_125),
            single_time: ms(10),
            max_batch: 8,
            ..ModelView::default()
        };
        let update = Update { complete: true, models: vec![(name, view)], ..Update::default() };
        picker.seen(now, node, &update).unwrap();
    }
    (0..PICKERS).for_each(|other| picker.peer_listed(now, other));
    picker
}

impl World {
    fn new() -> Self {
        let member = |number| Member {
            picker: started(number, Duration::ZERO),
            is_up: true,
            is_frozen: false,
            tickets: BTreeMap::new(),
            asked: BTreeMap::new(),
        };
        let mut world = Self {
            now: Duration::ZERO,
            members: (0..PICKERS).map(member).collect(),
            links: BTreeMap::new(),
            next_key: 0,
            decided: BTreeMap::new(),
            clients: BTreeMap::new(),
        };
        world.signs();
        world
    }

    fn member(&mut self, number: u32) -> &mut Member {
        &mut self.members[number as usize]
    }

    fn runs(&self, number: u32) -> bool {
        let member = &self.members[number as usize];
        member.is_up && !member.is_frozen
    }

    /// All pickers that run give a sign of life.
    fn signs(&mut self) {
        for from in (0..PICKERS).filter(|from| self.runs(*from)).collect::<Vec<_>>() {
            for to in (0..PICKERS).filter(|to| *to != from && self.runs(*to)).collect::<Vec<_>>() {
                let now = self.now;
                self.member(to).picker.peer_heard(now, from);
                self.settle(to);
            }
        }
    }

    fn arrive(&mut self, number: u32, model_number: u32, timeout: Option<Duration>) -> u64 {
        self.next_key += 1;
        let (key, now, name) = (self.next_key, self.now, model(model_number));
        self.clients.insert(key, number);
        let deadline = timeout.map(|timeout| now + timeout);
        let request = Request { key, model: &name, rows: 1, deadline, class: 0, is_asked: false };
        let member = self.member(number);
        if let Some(ticket) = member.picker.arrive(now, &request) {
            member.tickets.insert(key, ticket);
        }
        self.settle(number);
        key
    }

    /// The answer to a request is back, or its client left.
    fn end(&mut self, key: u64) {
        let (number, now) = (self.clients[&key], self.now);
        if let Some(ticket) = self.member(number).tickets.remove(&key) {
            self.member(number).picker.ended(now, ticket);
            self.settle(number);
        }
    }

    fn settle(&mut self, number: u32) {
        for effect in self.member(number).picker.take_effects() {
            let key = match &effect {
                Effect::Ask { key, picker, model, timeout, .. } => {
                    assert_eq!(
                        self.clients.get(key),
                        Some(&number),
                        "only requests of clients are asked for"
                    );
                    let ask = Message::Ask { key: *key, model: model.clone(), timeout: *timeout };
                    self.links.entry((number, *picker)).or_default().push_back(ask);
                    continue;
                }
                Effect::AskEnded { key, picker } => {
                    self.links.entry((number, *picker)).or_default().push_back(Message::Ended { key: *key });
                    continue;
                }
                Effect::Send { key, .. } | Effect::Refuse { key, .. } => *key,
            };
            let Some((asker, their_key)) = self.member(number).asked.get(&key).copied() else {
                self.decided.entry(key).or_default().push(effect);
                continue;
            };
            let answer = match effect {
                Effect::Send { nodes, basis: Basis::Batch { id, rows }, .. } => {
                    OwnerAnswer::Send { nodes, id, rows }
                }
                Effect::Refuse { reason: NotPicked::Router(reason), .. } => OwnerAnswer::Refuse(reason),
                Effect::Refuse { .. } => OwnerAnswer::Decline,
                other => panic!("no answer to another picker: {other:?}"),
            };
            let answer = Message::Answer { key: their_key, answer };
            self.links.entry((number, asker)).or_default().push_back(answer);
        }
    }

    /// Delivers the messages that wait on all links between pickers that run.
    fn deliver(&mut self) {
        loop {
            let ready = self.links.iter().find(|((_, to), queue)| self.runs(*to) && !queue.is_empty());
            let Some((&(from, to), _)) = ready else { return };
            let message = self.links.get_mut(&(from, to)).and_then(VecDeque::pop_front).unwrap();
            self.take(from, to, message);
        }
    }

    fn take(&mut self, from: u32, to: u32, message: Message) {
        let now = self.now;
        match message {
            Message::Ask { key: theirs, model, timeout } => {
                self.next_key += 1;
                let key = self.next_key;
                let member = self.member(to);
                member.asked.insert(key, (from, theirs));
                let deadline = timeout.map(|timeout| now + timeout);
                let request = Request { key, model: &model, rows: 1, deadline, class: 0, is_asked: true };
                if let Some(ticket) = member.picker.arrive(now, &request) {
                    member.tickets.insert(key, ticket);
                }
            }
            Message::Ended { key: theirs } => {
                let asked = self.member(to).asked.clone();
                let own = asked.iter().find(|(_, asked)| **asked == (from, theirs)).map(|(key, _)| *key);
                self.end_asked(to, own);
            }
            Message::Answer { key, answer } => self.member(to).picker.owner_answered(now, from, key, answer),
        }
        self.settle(to);
    }

    fn end_asked(&mut self, number: u32, key: Option<u64>) {
        let now = self.now;
        let member = self.member(number);
        if let Some(key) = key {
            if let Some(ticket) = member.tickets.remove(&key) {
                member.picker.ended(now, ticket);
            }
            member.asked.remove(&key);
        }
        self.settle(number);
    }

    /// A picker dies with all that it holds. Its connections break.
    fn kill(&mut self, number: u32) {
        self.links.retain(|(from, to), _| *from != number && *to != number);
        self.member(number).is_up = false;
        self.clients.retain(|_, picker| *picker != number);
        let now = self.now;
        for other in (0..PICKERS).filter(|other| *other != number) {
            let asked = self.member(other).asked.clone();
            for key in asked.into_iter().filter(|(_, (asker, _))| *asker == number).map(|(key, _)| key) {
                self.end_asked(other, Some(key));
            }
            self.member(other).picker.peer_lost(now, number);
            self.settle(other);
        }
    }

    fn restart(&mut self, number: u32) {
        let picker = started(number, self.now);
        let member = self.member(number);
        *member = Member {
            picker,
            is_up: true,
            is_frozen: false,
            tickets: BTreeMap::new(),
            asked: BTreeMap::new(),
        };
    }

    /// Time passes in steps of a millisecond, in which messages arrive and pickers that run give signs of life.
    fn wait(&mut self, millis: u64) {
        for _ in 0..millis {
            self.now += ms(1);
            self.signs();
            self.deliver();
            let now = self.now;
            for number in (0..PICKERS).filter(|number| self.runs(*number)).collect::<Vec<_>>() {
                self.member(number).picker.tick(now);
                self.settle(number);
            }
        }
    }

    /// A picker that does not own a model, and the one that does.
    fn asker_and_owner(&mut self, of: u32) -> (u32, u32) {
        let number = self.member(0).picker.model_numbers[&model(of)];
        let owner = self.member(0).picker.models[number as usize].owner.unwrap_or(0);
        ((owner + 1) % PICKERS, owner)
    }

    fn basis(&self, key: u64) -> Option<Basis> {
        match self.decided.get(&key)?.as_slice() {
            [Effect::Send { basis, .. }] => Some(*basis),
            other => panic!("expected one sent request, got {other:?}"),
        }
    }
}

#[test]
fn requests_of_all_pickers_are_one_batch_of_the_owner() {
    let mut world = World::new();
    let (asker, owner) = world.asker_and_owner(0);
    let first = world.arrive(owner, 0, Some(ms(500)));
    world.wait(1);
    let asked = world.arrive(asker, 0, Some(ms(500)));
    let own = world.arrive(owner, 0, Some(ms(500)));
    world.wait(7);
    world.end(first);
    world.deliver();
    let Some(Basis::Batch { id, rows: 2 }) = world.basis(own) else { panic!("{:?}", world.decided) };
    assert_eq!(world.basis(asked), Some(Basis::Owner { picker: owner, id, rows: 2 }));
    // The lane is free again once both have ended.
    let next = world.arrive(asker, 0, Some(ms(500)));
    world.end(own);
    world.deliver();
    assert_eq!(world.basis(next), None);
    world.end(asked);
    world.deliver();
    assert!(matches!(world.basis(next), Some(Basis::Owner { rows: 1, .. })));
    assert_eq!(world.member(asker).picker.ask_counts().answered, 2);
}

#[test]
fn the_owner_refuses_with_its_reason_and_a_client_may_leave() {
    let mut world = World::new();
    let (asker, owner) = world.asker_and_owner(0);
    let running = world.arrive(owner, 0, Some(ms(500)));
    let late = world.arrive(asker, 0, Some(ms(12)));
    let left = world.arrive(asker, 0, Some(ms(500)));
    world.end(left);
    world.wait(12);
    let refusal = Effect::Refuse { key: late, reason: NotPicked::Router(Reason::DeadlineUnmeetable) };
    assert_eq!(world.decided[&late], [refusal]);
    world.end(running);
    assert!(!world.decided.contains_key(&left));
    assert!(world.members.iter().all(|member| member.picker.unfinished() == 0));
}

#[test]
fn a_frozen_owner_costs_a_quarter_of_the_time_at_most_and_then_others_own_its_lanes() {
    let mut world = World::new();
    let (asker, owner) = world.asker_and_owner(0);
    world.member(owner).is_frozen = true;
    let waiting = world.arrive(asker, 0, Some(ms(80)));
    world.wait(19);
    assert_eq!(world.basis(waiting), None);
    world.wait(1);
    assert_eq!(world.basis(waiting), Some(Basis::Weights));
    let next = world.arrive(asker, 0, Some(ms(80)));
    assert_eq!(world.basis(next), Some(Basis::Weights), "it is not waited for again");
    let counts = world.member(asker).picker.ask_counts();
    assert_eq!((counts.silent, counts.unreachable), (1, 1));
    world.wait(AWAY_AFTER.as_millis() as u64);
    let others = (0..PICKERS).filter(|number| *number != owner);
    let keys: Vec<u64> = others.map(|number| world.arrive(number, 0, Some(ms(200)))).collect();
    world.wait(1);
    let bases = keys.iter().filter(|key| !matches!(world.basis(**key), Some(Basis::Weights)));
    assert_eq!(bases.count(), keys.len(), "another picker forms the batches: {:?}", world.decided);
    // It owns its lanes again once it gives signs of life.
    world.member(owner).is_frozen = false;
    world.wait(200);
    let again = world.arrive(asker, 0, Some(ms(200)));
    world.wait(30);
    assert!(matches!(world.basis(again), Some(Basis::Owner { picker, .. }) if picker == owner));
}

#[test]
fn requests_that_wait_at_an_owner_that_dies_are_sent_by_weights_at_once() {
    let mut world = World::new();
    let (asker, owner) = world.asker_and_owner(0);
    world.arrive(asker, 0, None);
    let waiting = world.arrive(asker, 0, None);
    world.deliver();
    world.kill(owner);
    assert_eq!(world.basis(waiting), Some(Basis::Weights));
    assert_eq!(world.member(asker).picker.ask_counts().disconnected, 1);
}

#[test]
fn lanes_of_a_picker_that_says_that_it_stops_have_another_owner_at_once() {
    let mut world = World::new();
    let (asker, owner) = world.asker_and_owner(0);
    for number in (0..PICKERS).filter(|number| *number != owner) {
        world.member(number).picker.peer_stops(Duration::ZERO, owner);
    }
    world.member(owner).is_frozen = true;
    let key = world.arrive(asker, 0, Some(ms(100)));
    world.deliver();
    assert!(!matches!(world.basis(key), None | Some(Basis::Weights)));
}

#[test]
fn requests_that_wait_when_their_lanes_change_owner_are_sent_and_not_refused() {
    let mut world = World::new();
    let (_, owner) = world.asker_and_owner(0);
    // Alone, another picker owns the lanes until the owner is heard.
    let alone = (owner + 1) % PICKERS;
    for number in (0..PICKERS).filter(|number| *number != alone) {
        world.member(alone).picker.peer_stops(Duration::ZERO, number);
    }
    world.arrive(alone, 0, None);
    let waiting = world.arrive(alone, 0, None);
    assert_eq!(world.basis(waiting), None);
    world.signs();
    assert_eq!(world.basis(waiting), Some(Basis::Weights));
}

#[test]
fn an_asked_picker_that_does_not_own_the_lanes_declines_and_does_not_ask() {
    let mut world = World::new();
    let (asker, _) = world.asker_and_owner(0);
    let name = model(0);
    let request = Request { key: 1, model: &name, rows: 1, deadline: None, class: 0, is_asked: true };
    assert_eq!(world.member(asker).picker.arrive(Duration::ZERO, &request), None);
    let refusal = Effect::Refuse { key: 1, reason: NotPicked::NotOwner };
    assert_eq!(world.member(asker).picker.take_effects(), [refusal]);
}

#[derive(Clone, Debug)]
enum Step {
    Arrive { picker: u32, model: u32, timeout: Option<u8> },
    End(prop::sample::Index),
    Deliver,
    Wait(u8),
    Freeze(u32),
    Resume(u32),
    Kill(u32),
    Restart(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..PICKERS, 0..MODELS, prop::option::of(1_u8..200))
            .prop_map(|(picker, model, timeout)| Step::Arrive { picker, model, timeout }),
        6 => any::<prop::sample::Index>().prop_map(Step::End),
        3 => Just(Step::Deliver),
        3 => (1_u8..40).prop_map(Step::Wait),
        1 => (0..PICKERS).prop_map(Step::Freeze),
        1 => (0..PICKERS).prop_map(Step::Resume),
        1 => (0..PICKERS).prop_map(Step::Kill),
        1 => (0..PICKERS).prop_map(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Whichever picker freezes or dies at whichever moment: the requests of the others are sent or refused once, and none is left.
    #[test]
    fn no_request_is_lost_or_answered_twice(steps in prop::collection::vec(step(), 1..100)) {
        let mut world = World::new();
        let mut ended = BTreeSet::new();
        for step in steps {
            match step {
                Step::Arrive { picker, model, timeout } if world.runs(picker) => {
                    world.arrive(picker, model, timeout.map(|millis| ms(millis.into())));
                }
                Step::End(index) => {
                    let open: Vec<u64> = world.clients.iter()
                        .filter(|(key, picker)| !ended.contains(*key) && world.runs(**picker))
                        .map(|(key, _)| *key)
                        .collect();
                    if !open.is_empty() {
                        let key = *index.get(&open);
                        ended.insert(key);
                        world.end(key);
                    }
                }
                Step::Deliver => world.deliver(),
                Step::Wait(millis) => world.wait(millis.into()),
                Step::Freeze(picker) if world.runs(picker) => world.member(picker).is_frozen = true,
                Step::Resume(picker) => world.member(picker).is_frozen = false,
                Step::Kill(picker) if world.members[picker as usize].is_up => world.kill(picker),
                Step::Restart(picker) if !world.members[picker as usize].is_up => world.restart(picker),
                _ => {}
            }
            for (key, decided) in &world.decided {
                prop_assert!(decided.len() == 1, "{}: {:?}", key, decided);
            }
        }
        for number in 0..PICKERS {
            world.member(number).is_frozen = false;
        }
        // Requests that were sent are answered, until nothing waits.
        for _ in 0..400 {
            let sent: Vec<u64> = world.clients.keys()
                .filter(|key| world.decided.contains_key(*key) && !ended.contains(*key))
                .copied()
                .collect();
            for key in sent {
                ended.insert(key);
                world.end(key);
            }
            world.wait(5);
        }
        for (key, picker) in &world.clients {
            if world.members[*picker as usize].is_up {
                let decided = world.decided.get(key).map_or(0, Vec::len);
                prop_assert!(decided == 1 || ended.contains(key), "{} of picker {}: {}", key, picker, decided);
            }
        }
        for member in world.members.iter().filter(|member| member.is_up) {
            prop_assert_eq!(member.picker.unfinished(), 0);
        }
        prop_assert_eq!(invariant::violations(), []);
    }
}
