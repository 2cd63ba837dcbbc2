//! Batch sizes that a session has run, and padding of batches to these sizes.
//!
//! On a GPU the first batch of each size is slow: kernels are loaded, and cuDNN plans each new shape, partly while all
//! gpulets wait. A new session therefore runs some sizes once: the powers of two, the sizes half-way between them, and the
//! largest batch. A batch of any other size is padded to the next of these.

use std::collections::BTreeSet;
use std::time::Duration;

use oip::Tensor;

use crate::engine::Batch;

/// Limit on the time for running each size once. A run that has started is finished.
pub(super) const WARM_UP_MAX: Duration = Duration::from_secs(10);

/// Bytes of the inputs and outputs of a sample batch, at most.
pub(super) const BYTES_MAX: usize = 256 * 1024 * 1024;

/// Batch sizes that ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rows {
    sizes: BTreeSet<u32>,
    /// Whether every batch is padded to the largest size.
    only_largest: bool,
}

impl Rows {
    /// One size, to which every smaller batch is padded.
    pub fn only(rows: u32) -> Self {
        Self { sizes: BTreeSet::from([rows]), only_largest: true }
    }

    /// Adds a size that ran.
    pub fn ran(&mut self, rows: u32) {
        self.sizes.insert(rows);
    }

    /// The largest size that ran; 0 if none did.
    pub fn largest(&self) -> u32 {
        self.sizes.last().copied().unwrap_or(0)
    }

    /// The size that a batch is padded to: its own if that size ran before, or if the next one is at least twice as large.
    pub fn fitting(&self, rows: u32) -> u32 {
        let next = self.sizes.range(rows..).next().copied().filter(|_| rows > 0);
        next.filter(|next| self.only_largest || *next < rows.saturating_mul(2)).unwrap_or(rows)
    }
}

/// Sizes that a new session runs, the most important first.
pub(super) fn sizes(max_batch: u32) -> impl Iterator<Item = u32> {
    let most = max_batch.max(1);
    let powers = move || {
        std::iter::successors(Some(1_u32), |size| size.checked_mul(2)).take_while(move |&size| size < most)
    };
    let between = powers().map(|size| size.saturating_add(size / 2));
    powers().chain([most]).chain(between.filter(move |&size| size > 2 && size < most))
}

/// The batch with its last row repeated until it has `rows` rows. `None`: its inputs do not have as many rows as it says,
/// or it has no rows.
pub(super) fn filled(batch: &Batch, rows: u32) -> Option<Batch> {
    let missing = usize::try_from(rows.checked_sub(batch.rows)?).ok()?;
    let own = usize::try_from(batch.rows).ok().filter(|own| *own > 0)?;
    let fill = |tensor: &Tensor| {
        if tensor.shape.extents().first() != Some(&u64::from(batch.rows)) {
            return None;
        }
        let width = tensor.data.len() / own;
        let last = tensor.data.get(width.checked_mul(own - 1)?..)?;
        let mut data = Vec::with_capacity(width.checked_mul(own.checked_add(missing)?)?);
        data.extend_from_slice(&tensor.data);
        (0..missing).for_each(|_| data.extend_from_slice(last));
        Some(Tensor {
            shape: tensor.shape.with_outermost(u64::from(rows)),
            data: data.into(),
            ..tensor.clone()
        })
    };
    let inputs = batch.inputs.iter().map(|input| input.as_ref().map(fill));
    let inputs = inputs.map(|input| input.map_or(Some(None), |filled| filled.map(Some)));
    Some(Batch { inputs: inputs.collect::<Option<_>>()?, rows })
}

/// The outputs of a batch that was padded from `own` to `rows` rows, without the added rows.
pub(super) fn truncated(outputs: Vec<Tensor>, rows: u32, own: u32) -> Vec<Tensor> {
    let truncate = |tensor: Tensor| {
        if tensor.shape.extents().first() != Some(&u64::from(rows)) || rows == 0 {
            return tensor;
        }
        let width = tensor.data.len() / usize::try_from(rows).unwrap_or(usize::MAX);
        let length = width.saturating_mul(usize::try_from(own).unwrap_or(0)).min(tensor.data.len());
        let shape = tensor.shape.with_outermost(u64::from(own));
        Tensor { data: tensor.data.slice(..length), shape, ..tensor }
    };
    outputs.into_iter().map(truncate).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::batch;
    use super::*;

    fn sorted(max_batch: u32) -> Vec<u32> {
        let mut sizes: Vec<u32> = sizes(max_batch).collect();
        assert_eq!(sizes[0], 1);
        sizes.sort_unstable();
        sizes
    }

    #[test]
    fn sizes_are_powers_steps_between_them_and_the_largest() {
        assert_eq!(sorted(32), [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]);
        assert_eq!(sorted(48), [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48]);
        assert_eq!((sorted(0), sorted(1), sorted(5)), (vec![1], vec![1], vec![1, 2, 3, 4, 5]));
        assert_eq!(sizes(8).collect::<Vec<_>>(), [1, 2, 4, 8, 3, 6], "steps between come last");
    }

    #[test]
    fn every_batch_up_to_the_largest_is_filled_up_to_one_that_ran() {
        for most in [1, 2, 7, 32, 48, 100] {
            let mut rows = Rows::default();
            sizes(most).for_each(|size| rows.ran(size));
            assert_eq!(rows.largest(), most);
            for own in 1..=most {
                let filled = rows.fitting(own);
                assert!(sorted(most).contains(&filled), "{own} of {most} would run as {filled}");
                assert!(filled >= own && f64::from(filled) <= f64::from(own) * 1.5, "{own} to {filled}");
            }
            assert_eq!(rows.fitting(most + 1), most + 1);
        }
    }

    #[test]
    fn with_one_size_every_batch_is_filled_up_to_it() {
        let rows = Rows::only(16);
        assert_eq!([1, 7, 16, 17].map(|own| rows.fitting(own)), [16, 16, 16, 17]);
        assert_eq!(rows.largest(), 16);
    }

    #[test]
    fn a_batch_is_not_filled_up_to_twice_as_many() {
        let mut rows = Rows::default();
        rows.ran(4);
        assert_eq!((rows.fitting(1), rows.fitting(2), rows.fitting(3), rows.fitting(0)), (1, 2, 4, 0));
    }

    #[test]
    fn rows_that_were_filled_up_are_removed_again() {
        let own = batch(3, 2, 1.0);
        let full = filled(&own, 4).unwrap();
        let (before, after) = (own.inputs[0].clone().unwrap(), full.inputs[0].clone().unwrap());
        assert_eq!((full.rows, after.shape.extents()), (4, &[4, 2][..]));
        assert_eq!(after.data[..24], before.data);
        assert_eq!(after.data[24..], before.data[16..], "the last row again");
        assert_eq!(truncated(vec![after.clone()], 4, 3), [before]);
        let fixed = Tensor { shape: oip::Shape::from_extents(&[8]), ..after };
        assert_eq!(truncated(vec![fixed.clone()], 4, 3), [fixed], "an output without rows is left as it is");
    }

    #[test]
    fn what_has_other_rows_than_it_says_is_left_alone() {
        assert_eq!(filled(&batch(0, 3, 0.0), 2).map(|batch| batch.rows), None);
        assert!(filled(&Batch { rows: 2, ..batch(3, 3, 0.0) }, 4).is_none());
        assert_eq!(filled(&Batch { inputs: vec![None], rows: 1 }, 2).unwrap().inputs, [None]);
    }
}
