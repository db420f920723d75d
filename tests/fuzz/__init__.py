"""Fuzzing: random and mutated input for as long as you like, from a seed that is printed first.

python -m tests.fuzz.frames --seconds 60
python -m tests.fuzz.recovery --seconds 60 --seed 7
"""
