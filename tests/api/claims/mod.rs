mod claim;
mod due;
mod subscribe;
