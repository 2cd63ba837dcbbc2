//! Models by number.

use crate::ModelId;
use crate::model::Model;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Models(Vec<Option<Model>>);

impl Models {
    pub(crate) fn get(&self, id: ModelId) -> Option<&Model> {
        self.0.get(id.0 as usize).and_then(Option::as_ref)
    }

    pub(crate) fn get_mut(&mut self, id: ModelId) -> Option<&mut Model> {
        self.0.get_mut(id.0 as usize).and_then(Option::as_mut)
    }

    /// Adds or replaces a model.
    pub(crate) fn insert(&mut self, id: ModelId, model: Model) {
        let index = id.0 as usize;
        if index >= self.0.len() {
            self.0.resize_with(index + 1, || None);
        }
        if let Some(entry) = self.0.get_mut(index) {
            *entry = Some(model);
        }
    }

    pub(crate) fn remove(&mut self, id: ModelId) -> Option<Model> {
        self.0.get_mut(id.0 as usize).and_then(Option::take)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ModelId, &Model)> + Clone {
        (0..).map(ModelId).zip(&self.0).filter_map(|(id, model)| Some((id, model.as_ref()?)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (ModelId, &mut Model)> {
        (0..).map(ModelId).zip(&mut self.0).filter_map(|(id, model)| Some((id, model.as_mut()?)))
    }

    /// Number of models and vacant places.
    pub(crate) fn slots(&self) -> usize {
        self.0.len()
    }
}
