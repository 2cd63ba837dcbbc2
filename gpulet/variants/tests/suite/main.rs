//! Plans for families: fixtures shared by all tests, then the tests.

mod bounds;
mod fixture;
mod live;
mod plans;
mod published;
mod spot;
