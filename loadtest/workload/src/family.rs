//! Families: models that answer the same requests with different quality.

/// The variants of a family.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Family {
    /// Its variants, in the order of the file.
    pub variants: Vec<FamilyVariant>,
    /// Least quality that its requests ask for.
    pub quality_min: f64,
    /// Least mean quality that plans which follow the load aim for.
    pub quality_mean: f64,
}

/// A variant of a family.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct FamilyVariant {
    /// Number of its model in [`crate::Workload::models`].
    pub model: u32,
    /// Its quality, from 0 to 1.
    pub quality: f64,
}

impl Family {
    /// The variants that have the quality that its requests ask for.
    pub fn allowed(&self) -> impl Iterator<Item = &FamilyVariant> {
        self.variants.iter().filter(|variant| variant.quality >= self.quality_min)
    }
}
