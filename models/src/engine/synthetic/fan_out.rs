//! Synthetic models that give any number of rows for a row.

use bytes::{Bytes, BytesMut};
use oip::{Datatype, Shape, Tensor};

use super::OUTPUT_BYTES_MAX;
use crate::TensorSpec;

/// Most requests of a table.
const REQUESTS_MAX: usize = 100_000;
/// Most rows that come of a row.
const ROWS_MAX: u32 = 10_000;
/// Bytes of the two values that a row begins with.
const MARK: usize = 8;

/// Rows that come of each row, by the number of its request and its own number.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(transparent)]
pub(crate) struct FanOut(Vec<Vec<u32>>);

impl FanOut {
    /// Whether the model gives a row for each row.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a model may have this table.
    pub(super) fn check(
        &self,
        max_batch: u32,
        inputs: &[TensorSpec],
        outputs: &[TensorSpec],
    ) -> Result<(), String> {
        if self.is_empty() {
            return Ok(());
        }
        if self.0.len() > REQUESTS_MAX {
            return Err(format!("fan_out: expected at most {REQUESTS_MAX} requests, got {}", self.0.len()));
        }
        if let Some(rows) = self.0.iter().flatten().find(|rows| **rows > ROWS_MAX) {
            return Err(format!("fan_out: expected at most {ROWS_MAX} rows of a row, got {rows}"));
        }
        let is_row = |spec: &TensorSpec| {
            let values = spec.dims.iter().skip(1).map(|dim| match dim {
                crate::Dim::Fixed(extent) => *extent,
                crate::Dim::Free => 0,
            });
            spec.datatype == Datatype::Fp32 && values.fold(1, u64::saturating_mul) >= 2
        };
        let fits = |input: &TensorSpec| {
            is_row(input)
                && outputs
                    .iter()
                    .all(|output| (output.datatype, &output.dims) == (input.datatype, &input.dims))
        };
        match inputs {
            [input] if max_batch > 0 && fits(input) => Ok(()),
            _ => Err(
                "fan_out: expected max_batch above 0, one FP32 input with two values a row or more, and outputs of its dimensions"
                    .to_owned(),
            ),
        }
    }

    /// The rows that come of those of a request, in their order.
    pub(super) fn of(&self, input: &Tensor) -> Result<Tensor, String> {
        let extents = input.shape.extents();
        let (rows, rest) = extents.split_first().map_or((0, &[][..]), |(rows, rest)| (*rows, rest));
        let row_bytes =
            rest.iter().fold(size_of::<f32>() as u64, |bytes, extent| bytes.saturating_mul(*extent));
        let row_bytes = usize::try_from(row_bytes).unwrap_or(usize::MAX).max(MARK);
        let mut data = BytesMut::new();
        let mut given = 0_u64;
        for row in input.data.chunks_exact(row_bytes) {
            let Some((request, row_of_request)) = mark(row) else { continue };
            let (first, count) = self.rows_of(request, row_of_request);
            if (data.len() as u64).saturating_add(u64::from(count) * row_bytes as u64) > OUTPUT_BYTES_MAX {
                return Err(format!("the rows that come of {rows} rows exceed {OUTPUT_BYTES_MAX} bytes"));
            }
            for own in first..first + u64::from(count) {
                let (request, rest) = row.split_at_checked(4).unwrap_or_default();
                data.extend_from_slice(request);
                data.extend_from_slice(&(own as f32).to_le_bytes());
                data.extend_from_slice(rest.get(4..).unwrap_or_default());
            }
            given += u64::from(count);
        }
        let shape: Vec<u64> = std::iter::once(given).chain(rest.iter().copied()).collect();
        Ok(Tensor {
            name: input.name.clone(),
            datatype: input.datatype,
            shape: Shape::from_extents(&shape),
            data: Bytes::from(data),
        })
    }

    /// The number of the first row that comes of a row, and how many do. Tables begin again at their ends.
    fn rows_of(&self, request: usize, row: usize) -> (u64, u32) {
        let Some(at) = request.checked_rem(self.0.len()) else { return (0, 1) };
        let rows = self.0.get(at).map(Vec::as_slice).unwrap_or_default();
        let Some(at) = row.checked_rem(rows.len()) else { return (0, 0) };
        let first = rows.iter().take(at).map(|rows| u64::from(*rows)).sum();
        (first, rows.get(at).copied().unwrap_or_default())
    }
}

/// The first two values of a row: the number of its request, and its own number in it.
fn mark(row: &[u8]) -> Option<(usize, usize)> {
    let [request, own] = [row.first_chunk::<4>()?, row.get(4..)?.first_chunk::<4>()?];
    Some((f32::from_le_bytes(*request) as usize, f32::from_le_bytes(*own) as usize))
}
