"""Tests of the tasks: questions, comparisons, accuracy."""
