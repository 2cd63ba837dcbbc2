//! Measuring beside synthetic neighbours: what a model suffers from them and they from it.
//!
//! Sensitivity and pressure after Bubble-Up (Mars et al., MICRO 2011), with two neighbours on all cores that the batch
//! does not have: one computes, one goes through memory.

use std::time::Duration;

use gpulet_core::profile::{Line, Neighbour, NeighbourLine, Utilisation, UtilisationLine};

use super::bench::{Bench, Desk, Halt, INPUT_BYTES_MAX, Loaded, ROTATION, cores_words};
use super::neighbours::Neighbours;
use super::repeat::Repeat;
use super::subjects::Subject;

/// Neighbours that a batch is measured beside.
pub const NEIGHBOURS: [Neighbour; 2] = [Neighbour::Compute, Neighbour::Stream];
/// Time for which a neighbour's own pace is measured: at least, and at most.
const PACE_LEAST: Duration = Duration::from_millis(50);
const PACE_MOST: Duration = Duration::from_secs(1);
/// Part of the pace of streaming on all cores from which on the other cores alone fill the memory's bandwidth.
const FILLED: f64 = 0.8;

/// Times as long as alone that computing may take beside a batch: beyond, their cores share more than memory.
const APART: f64 = 1.1;

/// One neighbour's doing.
struct Beside {
    line: NeighbourLine,
    /// Part of the neighbour's pace that the batches took.
    taken: f64,
}

impl Bench<'_> {
    /// Measures batches of a model on the first `units` cores beside neighbours on all others.
    ///
    /// # Errors
    /// When it was stopped, or something failed; batches until then are in the file.
    pub fn measure_beside(
        &self,
        subject: &Subject,
        units: u32,
        batches: &[u32],
        desk: &mut Desk<'_>,
    ) -> Result<(), Halt> {
        Self::in_a_thread(|| {
            let (model, (own, others)) = (subject.name.as_str(), self.split(units)?);
            let mut loaded = self.load_on(subject, units, own, desk)?;
            let header = self.header(subject, &loaded);
            let filled = self.filled(others)?;
            if filled < FILLED {
                desk.findings.notes.insert(format!(
                    "streaming on {} is {:.0} % of what all cores reach, and does not fill the memory's bandwidth: no \
                     utilisation lines",
                    cores_words(u32::try_from(others.len()).unwrap_or(u32::MAX)),
                    100.0 * filled
                ));
            }
            let most = loaded.session.signature().max_batch.max(1);
            for &batch in batches {
                // What is larger changes its answers, and the pass before this one said so.
                if batch <= most {
                    let beside = self.beside(&mut loaded, (model, batch, units), others, desk)?;
                    let known = desk.record.lines(model);
                    let faster =
                        || Some(p50_us(known, batch, units)? / p50_us(known, batch, self.machine.units())?);
                    let of = |wanted| beside.iter().find(|beside| beside.line.beside == wanted);
                    let apart =
                        of(Neighbour::Compute).is_some_and(|computed| computed.line.pressure <= APART);
                    if filled >= FILLED && !apart {
                        desk.findings.notes.insert(format!(
                            "{model}: beside it computing too takes over {APART} times as long: these cores share more than \
                             memory, as hyper-threads do, or others use them; no utilisation lines"
                        ));
                    }
                    let streamed = of(Neighbour::Stream).filter(|_| filled >= FILLED && apart);
                    let used = streamed.zip(faster());
                    let mut lines: Vec<Line> =
                        beside.iter().map(|beside| Line::Neighbour(beside.line)).collect();
                    lines.extend(used.map(|(streamed, faster)| utilisation(streamed, faster)));
                    desk.record.add(&header, &lines).map_err(Halt::Lost)?;
                }
                desk.bar.finish_cell();
            }
            Ok(())
        })
    }

    /// Cores of the batch, and all others.
    fn split(&self, units: u32) -> Result<(&[usize], &[usize]), Halt> {
        let split = usize::try_from(units).ok().and_then(|units| self.machine.cores.split_at_checked(units));
        split.ok_or_else(|| Halt::Failed(format!("{} are not there", cores_words(units))))
    }

    /// How much of the pace of streaming on all cores these reach alone.
    fn filled(&self, others: &[usize]) -> Result<f64, Halt> {
        let pace = |cores: &[usize]| {
            Neighbours::start(Neighbour::Stream, cores)?.pace_alone(self.pace_time(), self.stop)
        };
        let (some, all) = (pace(others)?, pace(&self.machine.cores)?);
        Ok(if all > 0.0 { some / all } else { 0.0 })
    }

    fn pace_time(&self) -> Duration {
        self.time.clamp(PACE_LEAST, PACE_MOST)
    }

    fn beside(
        &self,
        loaded: &mut Loaded,
        (model, batch, units): (&str, u32, u32),
        others: &[usize],
        desk: &mut Desk<'_>,
    ) -> Result<Vec<Beside>, Halt> {
        let Loaded { session, made_up, waiting, .. } = loaded;
        let batches = made_up.batches(batch, ROTATION, INPUT_BYTES_MAX);
        let batches =
            batches.ok_or_else(|| Halt::Failed(format!("batch {batch}: its inputs are too large")))?;
        let mut repeat = Repeat::new(session.as_mut(), waiting.as_ref(), &batches, self.stop);
        let usual = repeat.warm_up(self.time)?;
        // Alone before and behind, so that a machine that drifts is no neighbour.
        let before = repeat.measure(usual, self.time, |_| {})?.p50_us;
        let mut found = Vec::with_capacity(NEIGHBOURS.len());
        let steps = NEIGHBOURS.len() as f64;
        for (step, beside) in NEIGHBOURS.into_iter().enumerate() {
            desk.bar.say(format!("{model}, batch {batch} on {} beside {}", cores_words(units), word(beside)));
            let neighbours = Neighbours::start(beside, others)?;
            let alone = neighbours.pace_alone(self.pace_time(), self.stop)?;
            let usual = repeat.warm_up(self.time)?;
            let show = |done: f64| desk.bar.show((step as f64 + done) / steps);
            let (pace, measured) = neighbours.pace_during(|| repeat.measure(usual, self.time, show))?;
            if pace <= 0.0 || alone <= 0.0 {
                let reason = format!("batch {batch}: a neighbour got no time: measure on a quieter machine");
                return Err(Halt::Failed(reason));
            }
            let line = NeighbourLine {
                batch,
                units,
                beside,
                beside_units: u32::try_from(others.len()).unwrap_or(u32::MAX),
                slowdown: measured.p50_us,
                pressure: alone / pace,
                count: measured.count as u64,
            };
            found.push(Beside { line, taken: (1.0 - pace / alone).clamp(0.0, 1.0) });
        }
        let after = repeat.measure(usual, self.time, |_| {})?.p50_us;
        let alone_us = f64::midpoint(before, after);
        for beside in &mut found {
            beside.line.slowdown /= alone_us;
        }
        Ok(found)
    }
}

/// A neighbour in a word.
pub fn word(neighbour: Neighbour) -> &'static str {
    match neighbour {
        Neighbour::Compute => "compute",
        Neighbour::Stream => "stream",
    }
}

/// What batches use of the memory's bandwidth, from what they took of a neighbour that filled it: as much more as they were
/// slowed down meanwhile, and as much more as the whole device is faster. What they use of the caches' is not measured.
fn utilisation(streamed: &Beside, whole_is_faster: f64) -> Line {
    let bandwidth = (streamed.taken * streamed.line.slowdown * whole_is_faster).clamp(0.0, 1.0);
    Line::Utilisation(UtilisationLine {
        batch: streamed.line.batch,
        used: Utilisation { cache: 0.0, bandwidth },
    })
}

/// The median of a cell, of several the last.
fn p50_us(lines: &[Line], batch: u32, units: u32) -> Option<f64> {
    let cell = |line: &Line| match line {
        Line::Cell(cell) if cell.batch == batch && cell.units == units => Some(cell.p50_us),
        _ => None,
    };
    lines.iter().rev().find_map(cell)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidth_is_what_was_taken_of_a_neighbour_that_filled_it() {
        let line = NeighbourLine {
            batch: 4,
            units: 1,
            beside: Neighbour::Stream,
            beside_units: 3,
            slowdown: 1.5,
            pressure: 1.25,
            count: 100,
        };
        let streamed = Beside { line, taken: 0.2 };
        let used = |faster| match utilisation(&streamed, faster) {
            Line::Utilisation(line) => (line.batch, line.used.cache, line.used.bandwidth),
            other => panic!("{other:?}"),
        };
        // Alone they would have gone on half as fast again, and four cores are three times as fast as one.
        let (batch, cache, bandwidth) = used(3.0);
        assert_eq!((batch, cache), (4, 0.0));
        assert!((bandwidth - 0.9).abs() < 1e-12);
        assert_eq!(used(4.0).2, 1.0, "no more than all of it");
    }
}
