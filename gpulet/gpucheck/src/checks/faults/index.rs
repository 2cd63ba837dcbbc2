//! The effect of an index beyond a table, as a client may send it. On the CPU it is refused.

use std::sync::Arc;

use gpulet_cuda::{Backend, CudaDevice, CudaOptions, Cudnn, Found};
use models::engine::{Batch, RunError};
use models::{Format, ModelFiles, ModelName, Version};
use oip::{Datatype, Shape, Tensor};
use serde_json::json;

use super::ENGINE_TASK_TIMEOUT;
use crate::arguments::{Arguments, Task};
use crate::bench::{Bench, Stop, serve};
use crate::check::GRACE;
use crate::exit;
use crate::kernel_maker::words;
use crate::makers::{Engine, Makers};
use crate::operator::{ENTRIES, Operator};
use crate::report::{Fact, Report};
use crate::tasks::run_task;

/// Indices beyond it: the next one, and one beyond all memory.
const BEYOND: [i64; 2] = [16, 1 << 40];

/// What an index beyond the table did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Effect {
    Refused,
    /// The answer has a zero in place of an entry.
    Zero,
    /// The answer has an entry of the table, or the table is unchanged.
    Table,
    /// The answer has another number.
    OtherMemory,
    DeviceFailed,
}

impl Effect {
    fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Zero => "zero",
            Self::Table => "from the table",
            Self::OtherMemory => "other memory",
            Self::DeviceFailed => "the device failed",
        }
    }

    /// The effect on an answer of numbers.
    fn on(answer: &[f32]) -> Self {
        let kind = |&number: &f32| match number {
            0.0 => Self::Zero,
            // What a scatter writes.
            -1.0 => Self::Table,
            _ if (1..=ENTRIES).any(|entry| number.to_bits() == f32::from(entry).to_bits()) => Self::Table,
            _ => Self::OtherMemory,
        };
        answer.iter().map(kind).max().unwrap_or(Self::OtherMemory)
    }

    fn is_harmless(self) -> bool {
        self < Self::OtherMemory
    }
}

/// Runs each operator in its own process.
pub(super) fn run(bench: &mut Bench<'_>, arguments: &Arguments) -> Result<(), Stop> {
    for operator in Operator::ALL {
        let name = format!("faults.{}", operator.name());
        if let Err(missing) = &bench.engine {
            let missing = missing.clone();
            bench.report.skip(name, "4.3", missing);
            continue;
        }
        let time = bench.left().saturating_sub(GRACE);
        let mut said = false;
        let report = &mut bench.report;
        let ended = run_task(Task::Index(operator), arguments, ENGINE_TASK_TIMEOUT.min(time), |fact| {
            said |= fact.fact == name;
            report.add(&fact);
        });
        let code = ended.map_err(Stop::Other)?.code();
        if !said {
            let fact = Fact::new(name, "4.3").value("its process ended").ok(false);
            bench.report.add(&fact.detail(json!({"exit_code": code})));
        }
    }
    Ok(())
}

/// The task that requests entries beyond a table. Returns its exit code.
pub(crate) fn index_task(operator: Operator, found: &Found, engine: &Engine, report: &mut Report<'_>) -> u8 {
    match beyond(operator, found, engine) {
        Ok(fact) => {
            report.add(&fact);
            exit::SUCCESS
        }
        Err(stop) => {
            report.add(&Fact::new(format!("faults.{}", operator.name()), "4.3").detail(stop.to_string()));
            exit::FAILED
        }
    }
}

fn beyond(operator: Operator, found: &Found, engine: &Engine) -> Result<Fact, Stop> {
    let makers = Arc::new(Makers::new(engine, Cudnn::IfItRuns));
    let device = CudaDevice::take(found, Backend::CudaGreen, makers, &CudaOptions::default())?;
    let name = ModelName::new("table").map_err(|error| Stop::Other(error.to_string()))?;
    let files = ModelFiles::from_bytes(name, Version(1), Format::Onnx, operator.model().to_vec());
    let mut gpulet = serve(&device, &files, 0, 1)?;
    let mut ask = |index: i64| {
        let shape = Shape::from_extents(&[1, 1]);
        let data = index.to_le_bytes().to_vec().into();
        let tensor = Tensor { name: "x".to_owned(), datatype: Datatype::Int64, shape, data };
        gpulet.session.run(&Batch { inputs: vec![Some(tensor)], rows: 1 })
    };
    ask(3)?;
    let mut effects = Vec::new();
    let mut said = Vec::new();
    for index in BEYOND {
        let (effect, reason) = match ask(index) {
            Ok(outputs) => {
                let answer: Vec<f32> = words(&outputs).into_iter().map(f32::from_bits).collect();
                (Effect::on(&answer), format!("{answer:?}"))
            }
            Err(RunError::DeviceFailed(reason)) => (Effect::DeviceFailed, reason),
            Err(
                RunError::Input(reason) | RunError::Engine(reason) | RunError::Model { message: reason, .. },
            ) => (Effect::Refused, reason),
        };
        effects.push(effect);
        said.push(format!("{index}: {reason}"));
        if effect == Effect::DeviceFailed {
            break;
        }
    }
    let worst = effects.into_iter().max().unwrap_or(Effect::OtherMemory);
    let fact = Fact::new(format!("faults.{}", operator.name()), "4.3").value(worst.name());
    Ok(fact.ok(worst.is_harmless()).detail(said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_that_are_not_of_the_table_come_from_other_memory() {
        let table: Vec<f32> = (1..=ENTRIES).map(f32::from).collect();
        assert_eq!(Effect::on(&table), Effect::Table);
        assert_eq!(Effect::on(&[0.0]), Effect::Zero);
        assert_eq!(Effect::on(&[-1.0, 2.0]), Effect::Table);
        for other in [17.0, 1.5, f32::NAN, 1e-38] {
            assert_eq!(Effect::on(&[1.0, other]), Effect::OtherMemory, "{other}");
        }
        assert_eq!(Effect::on(&[]), Effect::OtherMemory);
        assert!(Effect::Zero.is_harmless() && !Effect::OtherMemory.is_harmless());
    }
}
