//! Requests of sequences before they reach the core, and the tensors that the server keeps for them.
//!
//! [`router_core::Sequences`] decides when a request is released. This module fills in the inputs that tell the model where
//! in its sequence a request is, and carries state tensors from one request to the next.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;
use gpulet::{Member, Response};
use invariant::expected;
use oip::{Datatype, Shape, Tensor};
use router_core::{
    Arrival, CorrelationId, ModelId, Nanos, Outcome, Reason, RequestId, SequenceEffect, SequenceLimits,
    SequenceRequest, Sequences, ShapeKey,
};

/// Where in its sequence a request is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequenceStep {
    /// Its sequence.
    pub id: CorrelationId,
    /// It is the first.
    pub start: bool,
    /// It is the last.
    pub end: bool,
}

/// How a model runs sequences.
#[derive(Clone, Debug)]
pub struct SequenceModel {
    /// How many sequences and requests it may hold, and for how long.
    pub limits: SequenceLimits,
    /// Inputs that the server adds to each request, by ascending position in the model's signature.
    pub inputs: Vec<ServerInput>,
    /// Output that becomes each state, and whether clients get it too, by position in `inputs`.
    pub states: Vec<StateOutput>,
}

/// An input that the server adds.
#[derive(Clone, Debug)]
pub struct ServerInput {
    /// Position in the model's signature.
    pub position: usize,
    /// What it holds.
    pub value: ServerValue,
}

/// What an input of the server holds.
#[derive(Clone, Debug)]
pub enum ServerValue {
    /// One of two tensors: false and true.
    Start([Tensor; 2]),
    /// One of two tensors: false and true.
    End([Tensor; 2]),
    /// Always the tensor for true, because rows without a request are not run.
    Ready(Tensor),
    /// The id of the sequence, in a tensor like this one.
    Id(Tensor),
    /// The state of this number, and its value at the start of a sequence.
    State(usize, Tensor),
}

/// An output that becomes the state of the next request.
#[derive(Clone, Debug)]
pub struct StateOutput {
    /// Name of the output.
    pub output: String,
    /// Name of the input.
    pub input: String,
    /// Whether the client gets it too.
    pub is_returned: bool,
}

struct Running {
    machine: Sequences,
    model: SequenceModel,
    states: BTreeMap<CorrelationId, Vec<Tensor>>,
}

impl Running {
    /// The states that a request gets, by number.
    fn states_of(&self, step: &SequenceStep) -> Option<&Vec<Tensor>> {
        self.states.get(&step.id).filter(|_| !step.start)
    }

    /// A key of the shapes of a request's states: sequences whose states have grown differently share no batch. If two keys
    /// happen to be equal, the lane refuses the batch and its requests run alone.
    fn shape_key(&self, step: &SequenceStep) -> u64 {
        let states = self.states_of(step);
        let shapes = self.model.inputs.iter().filter_map(|input| match &input.value {
            ServerValue::State(nth, initial) => {
                let tensor = states.and_then(|states| states.get(*nth)).unwrap_or(initial);
                tensor.shape.extents().get(1..)
            }
            _ => None,
        });
        let mut shapes = shapes.peekable();
        if shapes.peek().is_none() {
            return 0;
        }
        let mut hasher = DefaultHasher::new();
        shapes.for_each(|shape| shape.hash(&mut hasher));
        hasher.finish()
    }
}

/// What the actor must do.
pub(crate) enum FollowUp {
    Arrive(Arrival),
    Finish(RequestId, Outcome, Reason),
}

/// The sequences of all models.
#[derive(Default)]
pub(crate) struct AllSequences {
    models: BTreeMap<ModelId, Running>,
    /// Unfinished requests of sequences.
    requests: BTreeMap<RequestId, (SequenceStep, Arrival)>,
    /// Bytes of all states, and their limit.
    bytes: u64,
    bytes_limit: u64,
    /// The last states did not fit, and the log says so.
    is_full: bool,
    pub follow_ups: VecDeque<FollowUp>,
    effects: Vec<SequenceEffect>,
}

impl AllSequences {
    pub(crate) fn new(bytes_limit: u64) -> Self {
        Self { bytes_limit, ..Self::default() }
    }

    pub(crate) fn model_up(&mut self, id: ModelId, model: SequenceModel) {
        let machine = Sequences::new(model.limits);
        self.models.insert(id, Running { machine, model, states: BTreeMap::new() });
    }

    pub(crate) fn model_down(&mut self, id: ModelId) {
        if let Some(running) = self.models.remove(&id) {
            self.bytes =
                self.bytes.saturating_sub(running.states.values().map(|state| bytes_of(state)).sum());
        }
    }

    pub(crate) fn next_wake(&self) -> Option<Nanos> {
        self.models.values().filter_map(|running| running.machine.next_wake()).min()
    }

    pub(crate) fn held(&self) -> u32 {
        self.models.values().map(|running| running.machine.held()).sum()
    }

    /// Takes a request of a sequence. False if its model takes no sequences.
    pub(crate) fn arrive(&mut self, now: Nanos, step: &SequenceStep, arrival: Arrival) -> bool {
        let Some(running) = self.models.get_mut(&arrival.model) else { return false };
        let SequenceStep { id, start, end } = step.clone();
        let request =
            SequenceRequest { request: arrival.request, id, start, end, deadline: arrival.deadline };
        self.requests.insert(arrival.request, (step.clone(), arrival));
        running.machine.arrive(now, request, &mut self.effects);
        self.carry_out(arrival.model);
        true
    }

    /// The client of a request left. False if the core must be told.
    pub(crate) fn cancel(&mut self, now: Nanos, request: RequestId) -> bool {
        let Some((_, arrival)) = self.requests.get(&request) else { return false };
        let model = arrival.model;
        let Some(running) = expected!(self.models.get_mut(&model), "sequences.model_unknown") else {
            return false;
        };
        let held = running.machine.cancel(now, request, &mut self.effects);
        self.carry_out(model);
        held
    }

    pub(crate) fn tick(&mut self, now: Nanos) {
        let due = |running: &Running| running.machine.next_wake().is_some_and(|at| at <= now);
        let due: Vec<ModelId> =
            self.models.iter().filter(|(_, running)| due(running)).map(|(id, _)| *id).collect();
        for id in due {
            if let Some(running) = self.models.get_mut(&id) {
                running.machine.tick(now, &mut self.effects);
            }
            self.carry_out(id);
        }
    }

    /// Refuses all requests of a model's sequences, or of all models', that were not released, and those that come.
    pub(crate) fn close(&mut self, now: Nanos, model: Option<ModelId>, reason: Reason) {
        let ids: Vec<ModelId> =
            self.models.keys().copied().filter(|id| model.is_none_or(|model| model == *id)).collect();
        for id in ids {
            if let Some(running) = self.models.get_mut(&id) {
                running.machine.close(now, reason, &mut self.effects);
            }
            self.carry_out(id);
        }
    }

    fn carry_out(&mut self, model: ModelId) {
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                SequenceEffect::Release(request) => {
                    let released =
                        expected!(self.requests.get(&request), "sequences.released_request_unknown");
                    let Some((step, arrival)) = released else { continue };
                    let key = self.models.get(&model).map_or(0, |running| running.shape_key(step));
                    let shape = ShapeKey(arrival.shape.0 ^ key);
                    self.follow_ups.push_back(FollowUp::Arrive(Arrival { shape, ..*arrival }));
                }
                SequenceEffect::Finish { request, outcome, reason } => {
                    self.requests.remove(&request);
                    self.follow_ups.push_back(FollowUp::Finish(request, outcome, reason));
                }
                SequenceEffect::Ended(id) => {
                    let running = self.models.get_mut(&model);
                    let state = running.and_then(|running| running.states.remove(&id));
                    self.bytes = self.bytes.saturating_sub(state.map_or(0, |state| bytes_of(&state)));
                }
            }
        }
    }

    /// Adds the inputs of the server to a request that is dispatched.
    pub(crate) fn fill(&self, request: RequestId, member: &mut Member) {
        let Some((step, arrival)) = self.requests.get(&request) else { return };
        let Some(running) = expected!(self.models.get(&arrival.model), "sequences.model_unknown") else {
            return;
        };
        let states = running.states_of(step);
        for ServerInput { position, value } in &running.model.inputs {
            let tensor = match value {
                ServerValue::Start(values) => chosen(values, step.start),
                ServerValue::End(values) => chosen(values, step.end),
                ServerValue::Ready(value) => value.clone(),
                ServerValue::Id(like) => id_tensor(&step.id, like),
                ServerValue::State(nth, initial) => {
                    states.and_then(|states| states.get(*nth)).unwrap_or(initial).clone()
                }
            };
            member.inputs.insert((*position).min(member.inputs.len()), Some(tensor));
        }
    }

    /// Removes the inputs of the server from a request that runs again.
    pub(crate) fn strip(&self, request: RequestId, member: &mut Member) {
        let Some((_, arrival)) = self.requests.get(&request) else { return };
        let Some(running) = expected!(self.models.get(&arrival.model), "sequences.model_unknown") else {
            return;
        };
        for ServerInput { position, .. } in running.model.inputs.iter().rev() {
            if *position < member.inputs.len() {
                member.inputs.remove(*position);
            }
        }
    }

    /// A released request ended: keeps its states, removes those that the client does not get, and releases the next one.
    pub(crate) fn ended(
        &mut self,
        now: Nanos,
        request: RequestId,
        (outcome, reason): (Outcome, Reason),
        response: Option<&mut Response>,
    ) {
        let Some((step, arrival)) = self.requests.remove(&request) else { return };
        let model = arrival.model;
        let Some(running) = expected!(self.models.get_mut(&model), "sequences.model_unknown") else { return };
        // After an error of the model the sequence goes on with the state from before, as in Triton.
        let mut ran = outcome == Outcome::Done || reason == Reason::EngineFailed;
        if let Some(response) = response
            && !running.model.states.is_empty()
        {
            let states = running.model.states.iter().map(|state| {
                let output = response.outputs.iter().find(|output| output.name == state.output)?;
                Some(Tensor {
                    name: state.input.clone(),
                    // Outputs of a batch share memory, which would stay in use.
                    data: Bytes::copy_from_slice(&output.data),
                    ..output.clone()
                })
            });
            let states: Option<Vec<Tensor>> = states.collect();
            let hidden = |name: &str| {
                running.model.states.iter().any(|state| !state.is_returned && state.output == name)
            };
            response.outputs.retain(|output| !hidden(&output.name));
            let before = running.states.remove(&step.id).map_or(0, |states| bytes_of(&states));
            self.bytes = self.bytes.saturating_sub(before);
            let size = states.as_deref().map_or(0, bytes_of);
            let fits = self.bytes.saturating_add(size) <= self.bytes_limit;
            if !fits && !self.is_full {
                tracing::warn!(
                    model = model.0,
                    limit = self.bytes_limit,
                    "states of sequences take all their memory: sequences end early until others end"
                );
            }
            self.is_full = !fits;
            ran &= states.is_some() && fits;
            if let Some(states) = states.filter(|_| ran && !step.end) {
                self.bytes += size;
                running.states.insert(step.id, states);
            }
        }
        running.machine.ended(now, request, ran, &mut self.effects);
        self.carry_out(model);
    }
}

fn bytes_of(state: &[Tensor]) -> u64 {
    state.iter().map(|tensor| tensor.data.len() as u64).sum()
}

fn chosen([off, on]: &[Tensor; 2], value: bool) -> Tensor {
    if value { on.clone() } else { off.clone() }
}

/// The id as a tensor of one element. Of a number beyond the datatype, the low bytes remain.
fn id_tensor(id: &CorrelationId, like: &Tensor) -> Tensor {
    let number = match id {
        CorrelationId::Number(number) => *number,
        CorrelationId::Text(_) => 0,
    };
    let data = match like.datatype {
        Datatype::Bytes => {
            let text = id.to_string();
            let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
            [&length.to_le_bytes(), text.as_bytes()].concat()
        }
        other => {
            let size = other.size().unwrap_or(8).min(8);
            number.to_le_bytes().get(..size).unwrap_or_default().to_vec()
        }
    };
    Tensor { data: data.into(), ..like.clone() }
}

/// A tensor of the server: one row of these dimensions.
pub fn server_tensor(name: &str, datatype: Datatype, extents: &[u64], data: Vec<u8>) -> Tensor {
    Tensor { name: name.to_owned(), datatype, shape: Shape::from_extents(extents), data: data.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use router_core::{Class, Tenant};

    const MODEL: ModelId = ModelId(0);

    fn tensor(name: &str, value: u8) -> Tensor {
        server_tensor(name, Datatype::Uint8, &[1, 1], vec![value])
    }

    /// Inputs START, x and s; output s_out.
    fn all(bytes_limit: u64) -> AllSequences {
        let limits = SequenceLimits { slots: 2, held: 8, idle: Nanos::from_millis(10) };
        let start = ServerValue::Start([tensor("START", 0), tensor("START", 1)]);
        let inputs = vec![
            ServerInput { position: 0, value: start },
            ServerInput { position: 2, value: ServerValue::State(0, tensor("s", 0)) },
        ];
        let states =
            vec![StateOutput { output: "s_out".to_owned(), input: "s".to_owned(), is_returned: false }];
        let mut all = AllSequences::new(bytes_limit);
        all.model_up(MODEL, SequenceModel { limits, inputs, states });
        all
    }

    fn arrive(all: &mut AllSequences, slot: u32, start: bool) {
        let arrival = Arrival {
            request: RequestId::new(slot, 0),
            model: MODEL,
            class: Class::default(),
            tenant: Tenant::default(),
            shape: ShapeKey::default(),
            rows: 1,
            bytes: 1,
            deadline: None,
            timeout_action: Default::default(),
            pipeline: None,
        };
        let step = SequenceStep { id: CorrelationId::Number(1), start, end: false };
        assert!(all.arrive(Nanos::ZERO, &step, arrival));
    }

    fn filled(all: &AllSequences, slot: u32) -> Vec<u8> {
        let mut member = Member::of(vec![Some(tensor("x", 7))], 1);
        all.fill(RequestId::new(slot, 0), &mut member);
        let values = member.inputs.iter().flatten().map(|tensor| tensor.data[0]).collect();
        all.strip(RequestId::new(slot, 0), &mut member);
        assert_eq!(
            member.inputs.iter().flatten().map(|tensor| tensor.name.as_str()).collect::<Vec<_>>(),
            ["x"]
        );
        values
    }

    fn answer(all: &mut AllSequences, slot: u32, state: u8) -> Vec<String> {
        let mut response = Response::from(vec![tensor("y", 1), tensor("s_out", state)]);
        let end = (Outcome::Done, Reason::Answered);
        all.ended(Nanos::ZERO, RequestId::new(slot, 0), end, Some(&mut response));
        response.outputs.into_iter().map(|output| output.name).collect()
    }

    #[test]
    fn the_state_that_a_request_returns_is_an_input_of_the_next() {
        let mut all = all(64);
        arrive(&mut all, 1, true);
        arrive(&mut all, 2, false);
        assert_eq!(all.follow_ups.len(), 1, "the second is held back");
        assert_eq!(filled(&all, 1), [1, 7, 0]);
        assert_eq!(answer(&mut all, 1, 42), ["y"], "clients do not get the state");
        assert_eq!(filled(&all, 2), [0, 7, 42]);
        arrive(&mut all, 3, true);
        answer(&mut all, 2, 43);
        assert_eq!(filled(&all, 3), [1, 7, 0], "a start forgets it");
        all.model_down(MODEL);
        assert_eq!(all.bytes, 0);
    }

    #[test]
    fn sequences_whose_states_differ_in_shape_have_different_keys() {
        let mut all = all(64);
        let released = |all: &mut AllSequences| match all.follow_ups.pop_back() {
            Some(FollowUp::Arrive(arrival)) => arrival.shape,
            _ => panic!("nothing was released"),
        };
        arrive(&mut all, 1, true);
        let first = released(&mut all);
        answer(&mut all, 1, 42);
        arrive(&mut all, 2, false);
        assert_eq!(released(&mut all), first, "a state of the same shape shares batches with the start");
        let grown = server_tensor("s_out", Datatype::Uint8, &[1, 2], vec![1, 2]);
        let mut response = Response::from(vec![grown]);
        let end = (Outcome::Done, Reason::Answered);
        all.ended(Nanos::ZERO, RequestId::new(2, 0), end, Some(&mut response));
        arrive(&mut all, 3, false);
        assert_ne!(released(&mut all), first);
    }

    #[test]
    fn a_sequence_ends_when_its_state_exceeds_the_limit() {
        let mut all = all(0);
        arrive(&mut all, 1, true);
        arrive(&mut all, 2, false);
        answer(&mut all, 1, 42);
        let refused = |next: &FollowUp| matches!(next, FollowUp::Finish(id, _, Reason::SequenceEnded) if id.slot() == 2);
        assert!(all.follow_ups.iter().any(refused));
    }

    #[test]
    fn ids_become_tensors_of_one_element() {
        let like = |datatype| server_tensor("ID", datatype, &[1], Vec::new());
        let (number, text) = (CorrelationId::Number(0x1_0000_0002), CorrelationId::Text("ab".into()));
        assert_eq!(id_tensor(&number, &like(Datatype::Uint64)).data[..], [2, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(id_tensor(&number, &like(Datatype::Int32)).data[..], [2, 0, 0, 0]);
        assert_eq!(id_tensor(&text, &like(Datatype::Bytes)).data[..], [2, 0, 0, 0, b'a', b'b']);
    }
}
