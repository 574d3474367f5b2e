"""One thread for the numerical libraries, also for those that are imported later."""

import json
import os
import subprocess
import sys


def test_libraries_that_are_imported_inside_the_block_are_limited():
    code = (
        "import json\n"
        "from fmtc.linalg.threads import one_thread\n"
        "from threadpoolctl import threadpool_info\n"
        "def threads(api):\n"
        "    return [each['num_threads'] for each in threadpool_info() if each['user_api'] == api]\n"
        "found = {}\n"
        "for api in ('blas', 'openmp'):\n"
        "    with one_thread(api):\n"
        "        import scipy.linalg, sklearn.cluster, sklearn.neighbors\n"
        "        found[api] = threads(api), threads('openmp' if api == 'blas' else 'blas')\n"
        "    found[api + ' after'] = threads(api)\n"
        "print(json.dumps(found))\n"
    )
    three = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "3")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ | three
    )
    found = json.loads(done.stdout)
    for api in ("blas", "openmp"):
        inside, other = found[api]
        assert len(inside) >= 1
        assert set(inside) == {1}
        assert max(other) > 1  # the other kind is left as it was
        assert max(found[api + " after"]) > 1
