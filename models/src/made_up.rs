//! Made-up batches of a model, for whoever measures it outside of a server.

use crate::engine::{Batch, Session};
use crate::{Signature, sample};

/// Inputs that a model accepts, found by trying.
#[derive(Clone, Debug)]
pub struct MadeUp {
    signature: Signature,
    extent: u64,
}

impl MadeUp {
    /// Tries made-up rows on a session, with several extents for dimensions that it leaves free. `None`: it accepts
    /// none of them.
    pub fn of(session: &mut dyn Session) -> Option<Self> {
        let (extent, _) = sample::first_that_runs(session)?;
        Some(Self { signature: session.signature().clone(), extent })
    }

    /// The extent of every free dimension other than the batch; `None`: the model has no such dimension.
    pub fn free_extent(&self) -> Option<u64> {
        (!self.signature.has_fixed_inputs()).then_some(self.extent)
    }

    /// At most `count` batches of so many rows, and no more than fit into `bytes_max` bytes together. Floats differ
    /// from batch to batch; no tensor of numbers is all zeros. `None`: not even one batch fits.
    ///
    /// A model without batch dimension has batches of one row.
    pub fn batches(&self, rows: u32, count: usize, bytes_max: usize) -> Option<Vec<Batch>> {
        let one = sample::row(&self.signature, self.extent, 0)?;
        let row_bytes: usize = one.inputs.iter().flatten().map(|tensor| tensor.data.len()).sum();
        let batch_bytes = row_bytes.checked_mul(usize::try_from(rows).ok()?)?;
        if batch_bytes > bytes_max {
            return None;
        }
        let fitting = bytes_max.checked_div(batch_bytes).unwrap_or(1);
        let count = u64::try_from(count.min(fitting).max(1)).ok()?;
        let batch = |number: u64| {
            let first = number.saturating_mul(u64::from(rows));
            let rows = (first..first.saturating_add(u64::from(rows)))
                .map(|row| sample::row(&self.signature, self.extent, row));
            Some(sample::join(&rows.collect::<Option<Vec<_>>>()?))
        };
        (0..count).map(batch).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::fixture::{D, matmul};
    use crate::{LoadOptions, Loader};

    fn session(batch: D) -> Box<dyn Session> {
        Loader::without_ort().load(&matmul(batch).files(), &LoadOptions::default()).unwrap()
    }

    #[test]
    fn batches_run_and_differ() {
        let mut session = session(D::S("batch"));
        let made_up = MadeUp::of(session.as_mut()).unwrap();
        assert_eq!(made_up.free_extent(), None);
        let batches = made_up.batches(4, 3, 1 << 20).unwrap();
        assert_eq!(batches.len(), 3);
        let data = |batch: &Batch| batch.inputs[0].as_ref().unwrap().data.clone();
        for (number, batch) in batches.iter().enumerate() {
            assert_eq!(batch.rows, 4);
            assert!(data(batch).iter().any(|byte| *byte != 0));
            assert!(batches[..number].iter().all(|other| data(other) != data(batch)));
            session.run(batch).unwrap();
        }
    }

    #[test]
    fn as_many_are_made_as_fit() {
        let mut session = session(D::S("batch"));
        let made_up = MadeUp::of(session.as_mut()).unwrap();
        let bytes = made_up.batches(2, 1, 1 << 20).unwrap()[0].inputs[0].as_ref().unwrap().data.len();
        assert_eq!(made_up.batches(2, 9, 3 * bytes).unwrap().len(), 3);
        assert!(made_up.batches(2, 9, bytes - 1).is_none());
        assert!(made_up.batches(u32::MAX, 1, 1 << 20).is_none());
    }
}
