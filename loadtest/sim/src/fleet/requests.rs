//! The way of a request: gateway, picker, node and back.

use fleet_core::pick::{NodeNumber, NotPicked, OwnerAnswer};
use invariant::expected;
use router_core::{Gather, Nanos, Outcome};
use workload::Offered;

use super::balancing::{Batch, Decision, New, Sent};
use super::events::{Message, Travelling, What};
use super::node::{Arriving, Ended};
use super::{FleetSimulation, PICKER_TIMEOUT, TRIES};
use crate::error::Breach;
use crate::inflight::{Part, Request};

impl FleetSimulation {
    pub(super) fn arrives(&mut self, offered: &Offered) {
        let Some(model) = self.workload.models.get(offered.model as usize) else {
            invariant::violated!("sim.arrival_of_unknown_model");
            return;
        };
        let deadline = model.deadline.then(|| Nanos(self.now.saturating_add(model.slo)));
        let (tenant, rows) = (offered.tenant, offered.rows);
        let request =
            Request { arrived: self.now, deadline, model: offered.model, tenant, rows, part: Part::None };
        self.figures.offered(self.now, offered.model);
        self.ask_picker(request);
    }

    /// The next picker that the gateway believes to be there gets a request.
    pub(super) fn ask_picker(&mut self, request: Request) {
        let count = self.fleet.pickers;
        let next = (1..=count).map(|step| (self.next_picker + step) % count);
        let is_believed = |number: &u32| {
            self.pickers.get(*number as usize).is_some_and(|picker| self.now < picker.avoided_from)
        };
        let Some(number) = next.into_iter().find(is_believed) else {
            return self.refused(&request, "no_picker");
        };
        self.next_picker = number;
        let picker = expected!(self.pickers.get_mut(number as usize), "sim.unknown_picker");
        let model = self.workload.models.get(request.model as usize);
        let Some((picker, model)) = picker.zip(expected!(model, "sim.unknown_model")) else { return };
        if !picker.is_up {
            return self.events.push(self.now + PICKER_TIMEOUT, What::AskedAgain(request));
        }
        let key = self.next_key;
        self.next_key += 1;
        self.held.insert(key, (request, number));
        let deadline = request.deadline.map(|deadline| deadline.0);
        let (name, rows, class) = (model.name.as_str(), request.rows, model.priority);
        picker.balancer.arrive(self.now, &New { key, model: request.model, name, rows, deadline, class });
        self.decided(number);
    }

    /// Carries out what a picker decided, and sets its timer.
    pub(super) fn decided(&mut self, number: u32) {
        let Some(picker) = expected!(self.pickers.get_mut(number as usize), "sim.unknown_picker") else {
            return;
        };
        let decisions = picker.balancer.decisions();
        let wake = picker.balancer.next_wake().map_or(u64::MAX, |at| at.max(self.now));
        if wake < picker.wake {
            picker.wake = wake;
            self.events.push(wake, What::Picker(number));
        }
        let reach = self.now + self.fleet.network;
        let mut together: (Option<Gather>, Vec<Travelling>) = (None, Vec::new());
        for decision in decisions {
            match decision {
                Decision::Sent(Sent { key, nodes, batch }) => {
                    if let Some(asker) = self.asker(number, key) {
                        if let Some(Batch { id, rows, .. }) = batch {
                            let nodes = nodes.into_iter().map(NodeNumber).collect();
                            self.answer_asker(number, (asker, key), OwnerAnswer::Send { nodes, id, rows });
                        } else {
                            invariant::violated!("sim.asked_without_batch");
                        }
                        continue;
                    }
                    let gather = batch.map(Batch::mark);
                    let Some((request, _)) = self.held.remove(&key) else {
                        invariant::violated!("sim.request_not_held");
                        continue;
                    };
                    if (gather.is_none() || together.0 != gather) && !together.1.is_empty() {
                        self.events.push(reach, What::Reach(std::mem::take(&mut together.1)));
                    }
                    together.0 = gather;
                    let nodes = nodes.into_iter().take(TRIES).rev().collect();
                    together.1.push(Travelling { key, request, picker: number, gather, nodes });
                }
                Decision::Refused { key, reason } => {
                    if let Some(asker) = self.asker(number, key) {
                        let answer = match reason {
                            NotPicked::Router(reason) => OwnerAnswer::Refuse(reason),
                            _ => OwnerAnswer::Decline,
                        };
                        if let Some(picker) = self.pickers.get_mut(number as usize) {
                            picker.asked.remove(&key);
                        }
                        self.answer_asker(number, (asker, key), answer);
                    } else if let Some((request, _)) = self.held.remove(&key) {
                        self.refused(&request, &format!("picker: {reason}"));
                    }
                }
                Decision::Ask { owner, asked } => {
                    self.events.push(reach, What::Message(owner, Message::Asked(asked)));
                }
                Decision::AskEnded { owner, key } => {
                    self.events.push(reach, What::Message(owner, Message::AskEnded { key }));
                }
            }
        }
        if !together.1.is_empty() {
            self.events.push(reach, What::Reach(together.1));
        }
    }

    /// The picker that asked this one for a request.
    fn asker(&self, number: u32, key: u64) -> Option<u32> {
        self.pickers.get(number as usize)?.asked.get(&key).copied()
    }

    fn answer_asker(&mut self, owner: u32, (asker, key): (u32, u64), answer: OwnerAnswer) {
        let reach = self.now + self.fleet.network;
        self.events.push(reach, What::Message(asker, Message::OwnerAnswered { owner, key, answer }));
    }

    fn refused(&mut self, request: &Request, reason: &str) {
        self.figures.refused(request.arrived, reason.to_owned());
    }

    /// Requests reach a node.
    pub(super) fn reach(&mut self, together: Vec<Travelling>) -> Result<(), Breach> {
        let mut arriving = Vec::with_capacity(together.len());
        let mut place = None;
        for mut travelling in together {
            let request = travelling.request;
            let Some(number) = travelling.nodes.pop() else {
                self.refused(&request, "no_node");
                continue;
            };
            let (picker, key) = (travelling.picker, travelling.key);
            if self.nodes.get(number as usize).is_none_or(|node| !node.takes(request.model)) {
                let answered = What::Message(picker, Message::Answered { node: number, key });
                self.events.push(self.now + self.fleet.network, answered);
                self.figures.retried(request.arrived);
                // The refusal goes back to the gateway, and the request to the next node.
                self.events.push(self.now + 2 * self.fleet.network, What::Reach(vec![travelling]));
                continue;
            }
            // The node is told the time that is left when its answer would arrive.
            let deadline = request.deadline.map(|deadline| deadline.before(Nanos(self.fleet.network)));
            arriving.push(Arriving { request: Request { deadline, ..request }, picker, key });
            place = Some((number, request.model, travelling.gather));
        }
        let Some((number, model, gather)) = place else { return Ok(()) };
        let node = self.nodes.get_mut(number as usize);
        let Some((node, model)) = node.zip(self.workload.models.get(model as usize)) else { return Ok(()) };
        node.arrive(self.now, (&arriving, gather), (model.priority, model.row_bytes), &mut self.noise)?;
        self.settle(number);
        Ok(())
    }

    /// The time of a node's next event has come.
    pub(super) fn node_advances(&mut self, number: u32) -> Result<(), Breach> {
        let Some(node) = self.nodes.get_mut(number as usize).filter(|node| node.scheduled == self.now) else {
            return Ok(());
        };
        node.scheduled = u64::MAX;
        node.advance(self.now, &mut self.noise)?;
        self.settle(number);
        Ok(())
    }

    /// Takes the requests that ended on a node, and schedules its next event.
    pub(super) fn settle(&mut self, number: u32) {
        let Some(node) = expected!(self.nodes.get_mut(number as usize), "sim.unknown_node") else { return };
        let ended = std::mem::take(&mut node.ended);
        let next = node.next();
        if next < node.scheduled {
            node.scheduled = next;
            self.events.push(next, What::Node(number));
        }
        for Ended { arrived: Arriving { request, picker, key }, outcome, reason } in ended {
            let back = self.now + self.fleet.network;
            self.events.push(back, What::Message(picker, Message::Answered { node: number, key }));
            if outcome == Outcome::Done {
                let in_time = request.deadline.is_none_or(|deadline| self.now <= deadline.0);
                self.figures.answered(request.arrived, back, request.model, in_time);
            } else {
                self.figures.refused(request.arrived, format!("{reason:?}"));
            }
        }
    }
}
