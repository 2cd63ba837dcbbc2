//! What breaks by itself, and what operators do.

use std::mem::take;

use gpulet_core::rollout::{DeviceId, Event, GpuletId};

use super::super::devices::{Body, Running};
use super::super::plans;
use super::{Due, World, rates};

impl World {
    pub(super) fn requeue(&mut self, running: Option<Running>) {
        if let Some(Running { workload, requests }) = running {
            let queue = self.queues.entry(workload).or_default();
            requests.into_iter().rev().for_each(|request| queue.push_front(request));
        }
    }

    pub(super) fn lost(&mut self) {
        self.losses += 1;
        let sound = |id: &GpuletId| self.devices.bodies.get(id).is_some_and(|body| !body.faulty);
        let now =
            rates(self.active.iter().filter(|(id, _)| sound(id)).map(|(_, (gpulet, _))| gpulet.clone()));
        for (workload, floor) in &mut self.floors.1 {
            *floor = floor.min(now.get(workload).copied().unwrap_or(0.0));
        }
    }

    pub(super) fn accident(&mut self) {
        let ids: Vec<GpuletId> = self.devices.bodies.keys().copied().collect();
        let reason = "accident".to_owned();
        match (self.chance.below(10), self.chance.pick(&ids).copied()) {
            (0..6, Some(gpulet)) => self.fault(gpulet),
            (6..8, _) => self.lose_a_device(reason),
            (8, _) => self.tell(Event::Abort),
            _ => {
                self.tell(Event::Freeze);
                self.after(2_000_000, Due::Thaw);
            }
        }
        self.drain_and_run();
    }

    pub(super) fn fault(&mut self, gpulet: GpuletId) {
        let Some(body) = self.devices.bodies.get_mut(&gpulet) else { return };
        body.faulty = true;
        let running = body.running.take();
        self.requeue(running);
        self.lost();
        self.tell(Event::Fault { gpulet, reason: "illegal address".to_owned() });
        self.drain_and_run();
    }

    pub(super) fn lose_a_device(&mut self, reason: String) {
        let device = DeviceId::from(*self.chance.pick(&plans::DEVICES).unwrap());
        let here = |body: &Body| body.device == device;
        let removed: Vec<GpuletId> =
            self.devices.bodies.iter().filter(|(_, body)| here(body)).map(|(id, _)| *id).collect();
        for id in removed {
            let running = take(&mut self.devices.bodies.get_mut(&id).unwrap().running);
            self.requeue(running);
            self.devices.bodies.remove(&id);
            self.active.remove(&id);
            self.draining.remove(&id);
        }
        drop(self.devices.warm.remove_where(|(own, _)| *own == device));
        self.lost();
        self.tell(Event::DeviceRemoved { device, reason });
    }
}
