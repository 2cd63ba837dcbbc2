//! Measuring under contention: how much synthetic load slows a model down, and the model the load.
//!
//! Sensitivity and pressure after Bubble-Up (Mars et al., MICRO 2011), with two types of load on all cores that the
//! batch does not use: one computes, one streams through memory.

use std::time::Duration;

use gpulet_core::profile::{Aggressor, ContentionLine, Line, Utilisation, UtilisationLine};

use super::Halt;
use super::aggressors::Aggressors;
use super::bench::{Bench, Loaded, Recorder, cores_words, in_a_thread};
use super::repeat::Repeat;
use super::rotation;
use super::subjects::Subject;

/// Synthetic loads under which a batch is measured.
pub const AGGRESSORS: [Aggressor; 2] = [Aggressor::Compute, Aggressor::Stream];
/// Shortest and longest time for which the load's own pace is measured.
const PACE_LEAST: Duration = Duration::from_millis(50);
const PACE_MOST: Duration = Duration::from_secs(1);
/// Share of the streaming pace of all cores from which on the other cores alone saturate the memory bandwidth.
const FILLED: f64 = 0.8;

/// Largest slowdown of the computing load by a batch. Above it the cores share more than memory.
const APART: f64 = 1.1;

/// A measurement under one type of load.
struct Contended {
    line: ContentionLine,
    /// Share of the load's pace that the batches took.
    taken: f64,
}

impl Bench<'_> {
    /// Measures batches of a model on the first `units` cores, with synthetic load on all others. After an error, the batches
    /// until then are in the file.
    pub fn measure_contention(
        &self,
        subject: &Subject,
        units: u32,
        batches: &[u32],
        recorder: &mut Recorder<'_>,
    ) -> Result<(), Halt> {
        in_a_thread(|| {
            let (model, (own, others)) = (subject.name.as_str(), self.split(units)?);
            let mut loaded = self.load_on(subject, units, own, recorder)?;
            let header = self.header(subject, &loaded);
            let filled = self.filled(others)?;
            if filled < FILLED {
                recorder.findings.notes.insert(format!(
                    "streaming on {} reaches {:.0} % of the pace of all cores and does not saturate the memory bandwidth: no \
                     utilisation lines",
                    cores_words(u32::try_from(others.len()).unwrap_or(u32::MAX)),
                    100.0 * filled
                ));
            }
            let most = loaded.session.signature().max_batch.max(1);
            for &batch in batches {
                // Larger batches change answers, which the previous pass reported.
                if batch <= most {
                    let contended = self.contended(&mut loaded, (model, batch, units), others, recorder)?;
                    let known = recorder.record.lines(model);
                    let faster =
                        || Some(p50_us(known, batch, units)? / p50_us(known, batch, self.machine.units())?);
                    let of = |wanted| contended.iter().find(|found| found.line.aggressor == wanted);
                    let apart =
                        of(Aggressor::Compute).is_some_and(|computed| computed.line.pressure <= APART);
                    if filled >= FILLED && !apart {
                        recorder.findings.notes.insert(format!(
                            "{model}: it slows the computing load down more than {APART} times: the cores share more than memory, \
                             as hyper-threads do, or other processes use them; no utilisation lines"
                        ));
                    }
                    let streamed = of(Aggressor::Stream).filter(|_| filled >= FILLED && apart);
                    let used = streamed.zip(faster());
                    let mut lines: Vec<Line> =
                        contended.iter().map(|found| Line::Contention(found.line)).collect();
                    lines.extend(used.map(|(streamed, faster)| utilisation(streamed, faster)));
                    recorder.record.add(&header, &lines).map_err(Halt::Lost)?;
                }
                recorder.bar.finish_cell();
            }
            Ok(())
        })
    }

    /// Cores of the batch, and all others.
    fn split(&self, units: u32) -> Result<(&[usize], &[usize]), Halt> {
        let split = usize::try_from(units).ok().and_then(|units| self.machine.cores.split_at_checked(units));
        split.ok_or_else(|| Halt::Failed(format!("{} are not there", cores_words(units))))
    }

    /// Share of the streaming pace of all cores that these reach alone.
    fn filled(&self, others: &[usize]) -> Result<f64, Halt> {
        let pace = |cores: &[usize]| {
            Aggressors::start(Aggressor::Stream, cores)?.pace_alone(self.pace_time(), self.stop)
        };
        let (some, all) = (pace(others)?, pace(&self.machine.cores)?);
        Ok(if all > 0.0 { some / all } else { 0.0 })
    }

    fn pace_time(&self) -> Duration {
        self.time.clamp(PACE_LEAST, PACE_MOST)
    }

    fn contended(
        &self,
        loaded: &mut Loaded,
        (model, batch, units): (&str, u32, u32),
        others: &[usize],
        recorder: &mut Recorder<'_>,
    ) -> Result<Vec<Contended>, Halt> {
        let Loaded { session, shapes, waiting, .. } = loaded;
        let batches = rotation::batches(shapes, batch);
        let batches =
            batches.ok_or_else(|| Halt::Failed(format!("batch {batch}: its inputs are too large")))?;
        let mut repeat = Repeat::new(session.as_mut(), waiting.as_ref(), &batches, self.stop);
        let usual = repeat.warm_up(self.time)?;
        // Solo before and after, so that drift of the machine does not count as contention.
        let before = repeat.measure(usual, self.time, |_| {})?.p50_us;
        let mut found = Vec::with_capacity(AGGRESSORS.len());
        let steps = AGGRESSORS.len() as f64;
        for (step, aggressor) in AGGRESSORS.into_iter().enumerate() {
            recorder.bar.say(format!(
                "{model}, batch {batch} on {} under {}",
                cores_words(units),
                word(aggressor)
            ));
            let load = Aggressors::start(aggressor, others)?;
            let alone = load.pace_alone(self.pace_time(), self.stop)?;
            let usual = repeat.warm_up(self.time)?;
            let show = |done: f64| recorder.bar.show((step as f64 + done) / steps);
            let (pace, measured) = load.pace_during(|| repeat.measure(usual, self.time, show))?;
            if pace <= 0.0 || alone <= 0.0 {
                let reason =
                    format!("batch {batch}: the synthetic load got no time: measure on an idle machine");
                return Err(Halt::Failed(reason));
            }
            let line = ContentionLine {
                batch,
                units,
                aggressor,
                aggressor_units: u32::try_from(others.len()).unwrap_or(u32::MAX),
                slowdown: measured.p50_us,
                pressure: alone / pace,
                count: measured.count as u64,
            };
            found.push(Contended { line, taken: (1.0 - pace / alone).clamp(0.0, 1.0) });
        }
        let after = repeat.measure(usual, self.time, |_| {})?.p50_us;
        let alone_us = f64::midpoint(before, after);
        for contended in &mut found {
            contended.line.slowdown /= alone_us;
        }
        Ok(found)
    }
}

/// Name of a type of synthetic load.
pub fn word(aggressor: Aggressor) -> &'static str {
    match aggressor {
        Aggressor::Compute => "compute",
        Aggressor::Stream => "stream",
    }
}

/// Share of the memory bandwidth that batches use, from the share that they took of a load that saturated it. Scaled by
/// their slowdown, and by how much faster the whole device runs them. Use of caches is not measured.
fn utilisation(streamed: &Contended, whole_is_faster: f64) -> Line {
    let bandwidth = (streamed.taken * streamed.line.slowdown * whole_is_faster).clamp(0.0, 1.0);
    Line::Utilisation(UtilisationLine {
        batch: streamed.line.batch,
        used: Utilisation { cache: 0.0, bandwidth },
    })
}

/// The median of a cell, from its last line.
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
    fn bandwidth_is_the_share_taken_of_a_load_that_saturated_it() {
        let line = ContentionLine {
            batch: 4,
            units: 1,
            aggressor: Aggressor::Stream,
            aggressor_units: 3,
            slowdown: 1.5,
            pressure: 1.25,
            count: 100,
        };
        let streamed = Contended { line, taken: 0.2 };
        let used = |faster| match utilisation(&streamed, faster) {
            Line::Utilisation(line) => (line.batch, line.used.cache, line.used.bandwidth),
            other => panic!("{other:?}"),
        };
        // Solo they would be 1.5 times as fast, and four cores are three times as fast as one.
        let (batch, cache, bandwidth) = used(3.0);
        assert_eq!((batch, cache), (4, 0.0));
        assert!((bandwidth - 0.9).abs() < 1e-12);
        assert_eq!(used(4.0).2, 1.0, "no more than all of it");
    }
}
