//! Faults of a fleet, and what the leader does about them.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::moves::Moves;
use fleet_core::node_plan::NodePlan;
use invariant::expected;
use workload::{FleetFault, FleetPart};

use super::events::{Message, What};
use super::node::Node;
use super::{FleetSimulation, PICKER_TIMEOUT};
use crate::error::Breach;

/// Time after which the leader looks at its moves again, in nanoseconds.
const APPROACH: u64 = 5_000_000_000;

impl FleetSimulation {
    pub(super) fn fails(&mut self, fault: FleetFault) -> Result<(), Breach> {
        if let Some(until) = fault.until {
            self.events.push(until, What::FaultEnds(fault));
        }
        let noticed = self.now + self.fleet.notice;
        match fault.part {
            FleetPart::Leader => self.is_leader_up = false,
            FleetPart::Picker(number) => {
                let Some(picker) = self.pickers.get_mut(number as usize).filter(|picker| picker.is_up) else {
                    return Ok(());
                };
                (picker.is_up, picker.avoided_from) = (false, noticed);
                // Gateways wait in vain for what it holds, and ask another one.
                let held = self.held.extract_if(.., |_, (_, holder)| *holder == number);
                for (key, (request, _)) in held {
                    // Its gateway takes the request back.
                    picker.waiting.push(Message::Answered { node: 0, key });
                    self.events.push(self.now + PICKER_TIMEOUT, What::AskedAgain(request));
                }
            }
            FleetPart::Node(number) => {
                if let Some(node) = self.nodes.get_mut(number as usize).filter(|node| node.up) {
                    for inside in node.killed(&self.config)? {
                        self.figures.lost_inside(inside.request.arrived);
                        let (picker, key) = (inside.picker, inside.key);
                        let back = self.now + self.fleet.network;
                        self.events
                            .push(back, What::Message(picker, Message::Answered { node: number, key }));
                    }
                    self.events.push(noticed, What::Noticed);
                }
            }
        }
        Ok(())
    }

    pub(super) fn recovers(&mut self, fault: FleetFault) {
        match fault.part {
            FleetPart::Leader => {
                self.is_leader_up = true;
                self.events.push(self.now, What::Noticed);
            }
            FleetPart::Picker(number) => {
                let waiting = self.pickers.get_mut(number as usize).map(|picker| {
                    (picker.is_up, picker.avoided_from) = (true, u64::MAX);
                    std::mem::take(&mut picker.waiting)
                });
                self.signs();
                waiting.into_iter().flatten().for_each(|message| self.tell(number, message));
                self.tick_picker(number);
            }
            FleetPart::Node(number) => {
                let Some(node) = expected!(self.nodes.get_mut(number as usize), "sim.unknown_node") else {
                    return;
                };
                node.up = true;
                // It starts with the last plan that it got.
                let plan = self.node_names.get(number as usize).and_then(|name| self.in_force.get(name));
                let models = plan.map(|plan| self.placement.models(plan)).unwrap_or_default();
                self.load(number, &models);
                self.events.push(self.now + self.fleet.notice, What::Noticed);
            }
        }
    }

    /// The pickers and the leader know which nodes are there.
    pub(super) fn noticed(&mut self) -> Result<(), Breach> {
        for (number, (node, known)) in (0..).zip(self.nodes.iter().zip(&mut self.known)) {
            *known = node.up;
            if !node.up {
                for picker in self.pickers.iter_mut().filter(|picker| picker.is_up) {
                    picker.balancer.lost(self.now, number);
                }
            }
        }
        (0..self.fleet.pickers).for_each(|picker| self.decided(picker));
        if self.is_leader_up { self.plan(false) } else { Ok(()) }
    }

    /// Plans for the nodes that are known, and tells them. `at_once`: the first plan is in force at once.
    pub(super) fn plan(&mut self, at_once: bool) -> Result<(), Breach> {
        let planned = self.placement.plan(&self.known, &self.in_force);
        let planned = planned.map_err(|detail| Breach { id: "F2", detail })?;
        self.figures.planned(&planned);
        self.target = planned.nodes;
        if !at_once {
            return self.approach();
        }
        self.moves = Moves::new(self.target.clone());
        self.put_in_force(self.target.clone(), true)
    }

    /// One step towards the last plans.
    pub(super) fn approach(&mut self) -> Result<(), Breach> {
        if !self.is_leader_up {
            return Ok(());
        }
        let known = self.node_names.iter().zip(&self.nodes).zip(&self.known).filter(|(_, known)| **known);
        let ready = |node: &Node| -> BTreeSet<String> {
            let numbers = (0..).zip(&self.workload.models);
            let ready = numbers.filter(|(number, _)| node.takes(*number));
            ready.map(|(_, model)| model.name.clone()).collect()
        };
        let nodes = known.map(|((name, node), _)| (name.clone(), ready(node))).collect();
        let plans = (&self.target, &self.in_force);
        let step = self.placement.step(&mut self.moves, self.now, nodes, plans);
        if step.waiting > 0 && self.next_approach <= self.now {
            self.next_approach = self.now + APPROACH;
            self.events.push(self.next_approach, What::Approach);
        }
        self.put_in_force(step.plans, false)
    }

    fn put_in_force(&mut self, plans: BTreeMap<String, NodePlan>, at_once: bool) -> Result<(), Breach> {
        for (name, plan) in &plans {
            let Some(number) = self.node_numbers.get(name).copied() else { continue };
            if self.in_force.get(name) == Some(plan) {
                continue;
            }
            for planned in &plan.models {
                for picker in &mut self.pickers {
                    picker.balancer.planned(number, &planned.model, planned.rate);
                }
            }
            let wanted = self.placement.models(plan);
            let Some(node) = self.nodes.get_mut(number as usize).filter(|node| node.up) else { continue };
            let new: Vec<u32> =
                wanted.iter().copied().filter(|model| !node.models.contains_key(model)).collect();
            let old: Vec<u32> = node.models.keys().copied().filter(|model| !wanted.contains(model)).collect();
            if at_once {
                for model in new {
                    node.models.insert(model, 0);
                    let specs = self.specs.get(self.fleet.type_of(number));
                    if let Some(spec) = specs.and_then(|specs| specs.get(model as usize)) {
                        node.load(0, spec, &mut self.noise)?;
                    }
                }
                continue;
            }
            // Memory is bounded: a node drops what the plan does not have before it loads.
            for model in old {
                node.unload(self.now, model, &mut self.noise)?;
            }
            self.settle(number);
            self.load(number, &new);
        }
        self.in_force.extend(plans);
        Ok(())
    }

    /// A node loads models, one after the other.
    fn load(&mut self, number: u32, models: &[u32]) {
        let mut at = self.now;
        for model in models {
            at += self.fleet.load;
            if let Some(node) = self.nodes.get_mut(number as usize) {
                node.models.insert(*model, at);
            }
            self.events.push(at, What::Loaded { node: number, model: *model });
        }
    }

    pub(super) fn loaded(&mut self, number: u32, model: u32) -> Result<(), Breach> {
        let node = self.nodes.get_mut(number as usize);
        let specs = self.specs.get(self.fleet.type_of(number));
        let Some((node, spec)) = node.zip(specs.and_then(|specs| specs.get(model as usize))) else {
            return Ok(());
        };
        // The node failed since, or the plan changed.
        if !node.up || node.models.get(&model) != Some(&self.now) {
            return Ok(());
        }
        node.load(self.now, spec, &mut self.noise)?;
        self.settle(number);
        self.approach()
    }
}
