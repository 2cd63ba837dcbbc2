//! Models on gpulets: do they load there, do they answer rightly, and do they keep to the gpulet's SMs?

use std::time::{Duration, Instant};

use gpulet::Device;
use gpulet_cuda::CudaDevice;
use models::engine::Session;
use oip::{Datatype, Tensor};
use serde_json::json;

use crate::answer::Fact;
use crate::bench::{Bench, Stop, serve};
use crate::kernel_maker::{Work, amount};
use crate::pace::{Neighbour, beside, times};
use crate::spread::Spread;
use crate::subject::{Known, Subject, ready};

/// Batches behind a model's time.
const RUNS: usize = 20;

pub(super) fn ask(bench: &mut Bench<'_>) -> Result<(), Stop> {
    let Some(subjects) = ready(bench, "libraries.models", "4.3") else { return Ok(()) };
    let device = bench.cut()?;
    if device.info().units < 2 {
        bench.answers.skip("libraries.models", "4.3", "the device has one unit: expected a gpulet and a rest");
        return Ok(());
    }
    for (place, subject) in subjects.iter().enumerate() {
        let left = subjects.len() - place;
        let until = bench.after(1.0 / left as f64);
        if bench.is_over() {
            bench.answers.skip(format!("libraries.{}", subject.name()), "4.3", "no time was left");
            continue;
        }
        bench.tell(subject.name());
        if let Err(stop) = look_at(bench, &device, subject, until) {
            let fact = Fact::new(format!("libraries.{}_loads", subject.name()), "4.3");
            bench.answers.say(&fact.value(false).ok(false).detail(stop.to_string()));
        }
    }
    Ok(())
}

fn look_at(bench: &mut Bench<'_>, device: &CudaDevice, subject: &Subject, until: Instant) -> Result<(), Stop> {
    let half = device.info().units / 2;
    let begun = Instant::now();
    let mut gpulet = serve(device, &subject.files, 0, half)?;
    let loaded = begun.elapsed().as_secs_f64() * 1e3;
    let session = gpulet.session.as_mut();
    let batch = subject.batch(session, 1)?;
    let fact = Fact::new(format!("libraries.{}_loads", subject.name()), "4.3").value(true).ok(true);
    bench.answers.say(&fact.detail(json!({"engine": session.engine(), "load_ms": loaded})));
    answers(bench, subject, session)?;
    let measured = times(session, &batch, (3, RUNS), until)?;
    let Some(alone) = Spread::of(&measured) else { return Ok(()) };
    let fact = Fact::new(format!("libraries.{}_batch_1", subject.name()), "4.3").value(alone.median()).unit("us");
    bench.answers.say(&fact.detail(json!({"units": half, "us": alone.to_json()})));
    keeps_to_its_sms(bench, device, (subject, session), alone.median())
}

fn answers(bench: &mut Bench<'_>, subject: &Subject, session: &mut dyn Session) -> Result<(), Stop> {
    let name = format!("libraries.{}_difference", subject.name());
    let Some(known) = &subject.known else {
        bench.answers.skip(name, "4.3", "no `reference.json` beside the model");
        return Ok(());
    };
    let outputs = session.run(&known.batch)?;
    let worst = worst_difference(known, &outputs).map_err(Stop::Other)?;
    let fact = Fact::new(name, "4.3").value(worst).ok(worst <= known.tolerance);
    bench.answers.say(&fact.detail(json!({"tolerance": known.tolerance, "rows": known.batch.rows})));
    Ok(())
}

/// The largest relative difference of an output, by norms.
fn worst_difference(known: &Known, outputs: &[Tensor]) -> Result<f64, String> {
    let mut worst = 0.0_f64;
    for wanted in &known.outputs {
        let given = outputs.iter().find(|given| given.name == wanted.name);
        let given = given.ok_or_else(|| format!("output `{}`: expected one, got none", wanted.name))?;
        if given.shape != wanted.shape || given.datatype != wanted.datatype {
            let (wanted_shape, shape) = (wanted.shape.extents(), given.shape.extents());
            return Err(format!("output `{}`: expected {wanted_shape:?}, got {shape:?}", wanted.name));
        }
        worst = worst.max(difference(wanted, given)?);
    }
    Ok(worst)
}

fn difference(wanted: &Tensor, given: &Tensor) -> Result<f64, String> {
    if wanted.datatype != Datatype::Fp32 {
        return Ok(if wanted.data == given.data { 0.0 } else { f64::INFINITY });
    }
    let numbers = |data: &[u8]| -> Vec<f64> {
        let words = data.chunks_exact(4).filter_map(|word| word.try_into().ok());
        words.map(|word| f64::from(f32::from_le_bytes(word))).collect()
    };
    let (wanted_numbers, given_numbers) = (numbers(&wanted.data), numbers(&given.data));
    if given_numbers.iter().any(|number| !number.is_finite()) {
        return Err(format!("output `{}`: expected finite numbers", wanted.name));
    }
    let norm = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|number| number * number).sum::<f64>().sqrt();
    let apart = norm(&mut wanted_numbers.iter().zip(&given_numbers).map(|(one, other)| one - other));
    Ok(apart / norm(&mut wanted_numbers.iter().copied()).max(1e-12))
}

/// All threads of all other SMs are held while a batch runs: one that needed any of them would wait until they are let
/// go. Held for much longer than a batch takes.
fn keeps_to_its_sms(
    bench: &mut Bench<'_>,
    device: &CudaDevice,
    (subject, session): (&Subject, &mut dyn Session),
    alone_us: f64,
) -> Result<(), Stop> {
    let half = device.info().units / 2;
    let mut rest = serve(device, &Work::Trace.files()?, half, device.info().units - half)?;
    let hold_us = (alone_us * 5.0).clamp(20_000.0, 500_000.0);
    let hold = amount(hold_us as u32);
    rest.session.run(&amount(1))?;
    let batch = subject.batch(session, 1)?;
    let mut neighbour = Neighbour { session: rest.session.as_mut(), batch: hold, duty: 100 };
    let (measured, meanwhile) = beside(&mut neighbour, || times(session, &batch, (3, 5), Instant::now()))?;
    let Some(held) = Spread::of(&measured) else { return Ok(()) };
    let holding = meanwhile.busy / u32::try_from(meanwhile.batches.max(1)).unwrap_or(1);
    let kept = held.median() < holding.as_secs_f64() * 1e6 / 2.0;
    let fact = Fact::new(format!("libraries.{}_keeps_to_its_sms", subject.name()), "4.3").value(kept);
    // Where holding takes no time, as on a stand-in, nothing was held.
    let fact = if holding >= Duration::from_millis(5) { fact.ok(kept) } else { fact };
    let detail = json!({"alone_us": alone_us, "beside_held_sms_us": held.to_json(), "held_ms": holding.as_secs_f64() * 1e3});
    bench.answers.say(&fact.detail(detail));
    Ok(())
}
