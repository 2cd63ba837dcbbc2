"""How lines are divided for the recognition model.

The model gets lines in groups of about the same width, as in the package, because the padding of a line affects its score. Each group is a
tensor and a stage of the pipeline. With more than GROUPS * GROUP_LINES lines, groups are larger than those of the package.
"""

GROUPS = 10
GROUP_LINES = 6
