"""The conductor of experiments: many cases of one plan, each a run of its own, resumed where they were left.

from inferometer.experiment import prepare, begin, sweep
swept = sweep(prepare("experiment.yaml"), begin(...))
"""

from inferometer.experiment.conduct import Swept as Swept
from inferometer.experiment.conduct import sweep as sweep
from inferometer.experiment.prepare import Prepared as Prepared
from inferometer.experiment.prepare import begin as begin
from inferometer.experiment.prepare import prepare as prepare
from inferometer.experiment.prepare import resume as resume
from inferometer.experiment.prepare import unfinished as unfinished
