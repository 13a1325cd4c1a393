"""The instructions, a module for each engine: operand rules first, mathematics last."""
