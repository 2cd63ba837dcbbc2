//! What callers ask of the actor besides requests.

use router_core::{Event, Incoming, LaneClass, LaneId, LaneSpec, Reason};

use super::Actor;
use crate::handle::Control;
use crate::job::RecordKey;

impl Actor {
    pub(super) fn control(&mut self, command: Control) {
        match command {
            Control::ModelUp(spec, done) => {
                let free = !self.core.knows(spec.model);
                self.process(Event::ModelUp(&spec), None);
                let _ = done.send(free && self.core.knows(spec.model));
            }
            Control::ModelChanged(spec, done) => {
                self.process(Event::ModelChanged(&spec), None);
                let _ = done.send(());
            }
            Control::TenantsChanged(table, done) => {
                self.process(Event::TenantsChanged(&table), None);
                let _ = done.send(());
            }
            Control::PipelineUp(spec, done) => {
                self.process(Event::PipelineUp(&spec), None);
                let _ = done.send(());
            }
            Control::PipelineDown(pipeline, done) => {
                self.process(Event::PipelineDown(pipeline), None);
                let _ = done.send(());
            }
            Control::FamilyUp(spec, done) => {
                self.process(Event::FamilyUp(&spec), None);
                let _ = done.send(());
            }
            Control::FamilyDown(family, done) => {
                self.process(Event::FamilyDown(family), None);
                let _ = done.send(());
            }
            Control::Choose(query, done) => {
                let incoming = Incoming {
                    class: query.class,
                    rows: query.rows,
                    bytes: query.bytes,
                    deadline: query.deadline.map(|deadline| self.clock.at(deadline)),
                };
                let _ = done.send(self.core.choose(self.clock.now(), &incoming, &query.wanted));
            }
            Control::ModelDown(model, done) => {
                self.gatherings.release_model(model);
                self.feed_gathered();
                self.retiring.entry(model).or_default().push(done);
                self.process(Event::ModelDown(model), None);
                if !self.core.knows(model) {
                    self.retired(model);
                }
            }
            Control::SequencesUp(id, model, done) => {
                self.sequences.model_up(id, *model);
                let _ = done.send(());
            }
            Control::EndSequences(id, done) => {
                self.sequences.close(self.clock.now(), Some(id), Reason::SequenceEnded);
                self.follow_up();
                let _ = done.send(());
            }
            Control::LaneUp { lane, done } => {
                let spec = LaneSpec::new(LaneId(lane.id()), LaneClass(lane.lane_class()));
                self.lanes.insert(lane.id(), lane);
                self.process(Event::LaneUp(spec), None);
                let _ = done.send(());
            }
            Control::Switch(plan, done) => {
                let _ = done.send(self.switch(*plan));
            }
            Control::LaneIdle(lane, told) => self.tell_idle(lane, told),
            Control::LaneFailed(lane, told) => self.lane_failed(lane.0, told),
            Control::LaneDown(lane, done) => {
                let _ = done.send(self.lane_down(lane));
            }
            Control::Drain { until, done } => {
                self.drained.push(done);
                self.sequences.close(self.clock.now(), None, Reason::Draining);
                self.gatherings.close();
                self.feed_gathered();
                self.process(Event::Drain { until: self.clock.at(until) }, None);
            }
            Control::Snapshot(reply) => {
                let _ = reply.send(self.core.snapshot());
            }
            Control::GatherCounts(reply) => {
                let _ = reply.send(self.gatherings.counts());
            }
            Control::Backlogs(reply) => {
                let _ = reply.send(self.core.backlogs());
            }
            Control::Explain(RecordKey { request, ended }, reply) => {
                let _ = reply.send(self.core.explain(request, ended));
            }
        }
    }
}
