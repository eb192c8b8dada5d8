//! Steps of a handler, which a retry replays. The guide is [`docs::steps`](crate::docs::steps).
pub use idempotent_core::{
    InTransaction, MAX_STEP_BYTES, MAX_STEP_NAME, MAX_STEPS, MAX_STEPS_BYTES, OutsideTransaction, Step, StepError,
    StepRecord, StepState, StepStore, StoredSteps, step, step_in, step_key,
};
