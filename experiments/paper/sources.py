"""Where the photos of the experiments come from: GitHub repositories for the scenes, publications for the sequences."""

SCENES = {
    "liberty": "vork/StatueOfLiberty-Photogrammetry",
    "lund_door": "borglab/gtsfm",
    "fox": "NVlabs/instant-ngp",
    "horns": "Bussler/CustomNeRF",
    "truck": "nakwei/Gaussian-Splatting",
    "statue": "facebookresearch/vggsfm",
    "kitchen": "facebookresearch/vggt",
    "brandenburg": "SaadH-077/Vision3D-Landmark-Recon",
    "castle": "alicevision/SfM_quality_evaluation",
    "fountain": "alicevision/SfM_quality_evaluation",
    "sacre_coeur": "cvg/Hierarchical-Localization",
    "langley": "OpenDroneMap/odm_data_langley",
    "lewis": "OpenDroneMap/odm_data_lewis",
    "brighton": "pierotofy/drone_dataset_brighton_beach",
    "monstree": "alicevision/dataset_monstree",
    "cyprus": "3DOM-FBK/deep-image-matching",
    "sceaux": "openMVG/ImageDataset_SceauxCastle",
    "british_museum": "facebookresearch/vggsfm",
}
SEQUENCES = {
    "oxford_": "Oxford's affine covariant regions (Mikolajczyk et al. 2005)",
    "v_": "images of HPatches (Balntas et al. 2017)",
    "webcam_": "TILDE's webcams (Verdie et al. 2015; academic purposes only)",
    "exposure_": "exposures of Stanford's Memorial Church (Debevec and Malik 1997)",
}
