"""Programs of other libraries, as their documentation has them: whole steps of training, solves and samplers."""
