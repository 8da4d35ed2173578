"""What is computed: shapes, costs, inputs and the library that rivals it."""
